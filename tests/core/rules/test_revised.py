"""Edits of what pods are made of: at once and free before a start, together at the next attempt afterwards."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.core.situation import revision
from trainmaster.wire import names
from trainmaster.wire.agent_states import Verb

from tests.builders import a_death, a_job, evicted, pending
from tests.core.members_stage import a_parameter_server_job
from tests.core.stage import Stage, a_running_group, a_stage

EDITS: list[dict[str, Any]] = [
    {"image": "team/corrected:1"},
    {"env": ({"name": "A", "value": "b"},)},
    {"cpu": "100m"},
    {"memory": "1Gi"},
    {"nodeSelector": {"disktype": "ssd"}},
    {"tolerations": ({"key": "gpu", "operator": "Exists"},)},
    {"volumes": ({"name": "data", "emptyDir": {}},)},
    {"priorityClassName": "high"},
    {"template": {"metadata": {"labels": {"team": "a"}}}},
]


def edit(stage: Stage, **workers: Any) -> Stage:
    """A user changes spec.workers (camelCase)."""
    spec = stage.job.spec.to_dict()
    role = {**spec.get("workers", {}), **workers}
    parsed = TrainingJob.parse({"spec": {**spec, "workers": role}})
    return stage.respec(workers=parsed.spec.workers)


def revisions(stage: Stage) -> set[str]:
    """Of the pods that are alive."""
    return {replica.revision for replica in stage.replicas.values() if replica.alive}


def of_the_present_spec(stage: Stage) -> bool:
    """Whether all pods are."""
    return revisions(stage) == {revision.revision_of(stage.job, names.WORKER)}


@pytest.mark.parametrize("change", EDITS, ids=lambda change: next(iter(change)))
def test_a_pod_that_has_not_started_is_made_anew_at_once_and_free(change: dict[str, Any]) -> None:
    stage = a_stage(2).settle().change("worker-1", lambda replica: pending(replica, "ImagePullBackOff"))
    edit(stage.wait(500), **change)
    assert of_the_present_spec(stage)
    assert stage.status.incarnations == {"worker-0": 1, "worker-1": 1}
    assert (stage.status.restarts, stage.status.attempt) == ((), 1)
    assert f"spec.workers.{next(iter(change))} changed: worker-0, worker-1 are made anew." in stage.events[-1].message
    assert stage.wait(599).status.phase == Phase.PENDING, "it has its whole time anew"
    assert stage.train().status.phase == Phase.RUNNING


def test_agents_that_wait_for_others_are_made_anew_with_them() -> None:
    stage = a_stage(3).settle().call_in("worker-0")
    assert of_the_present_spec(edit(stage, image="other"))
    assert stage.train().status.phase == Phase.RUNNING


def test_a_number_of_workers_or_a_policy_makes_no_pod_anew() -> None:
    stage = a_stage(2).settle().scale(3)
    policy = stage.job.spec.failure_policy.model_copy(update={"max_restarts": 3, "start_seconds": 60})
    stage.respec(failure_policy=policy, active_deadline_seconds=1000)
    assert stage.status.incarnations == {}


def test_a_group_that_trains_says_so_and_takes_it_as_a_whole_at_the_next_attempt() -> None:
    stage = a_running_group(3)
    before = revisions(stage)
    edit(stage, image="other", cpu="2")
    assert (revisions(stage), stage.status.phase) == (before, Phase.RUNNING)
    assert stage.told("SpecChanged") == ("True", "NextAttempt")
    condition = stage.condition("SpecChanged")
    assert condition
    assert condition.message.startswith("spec.workers.cpu, spec.workers.image changed after attempt 1 had begun.")
    assert "begins at step 0" in condition.message, "there is no storage beside the pods"
    assert [event.reason for event in stage.events] == ["SpecChanged"]
    stage.rank_dies("worker-1", a_death(rank=1)).obey()
    assert of_the_present_spec(stage)
    assert set(stage.status.incarnations.values()) == {1}
    assert stage.told("SpecChanged") == ("False", "Taken")
    assert stage.train().status.phase == Phase.RUNNING
    assert len(stage.status.restarts) == 1


def test_a_change_that_is_taken_back_is_none() -> None:
    stage = edit(edit(a_running_group(2), image="other"), image=None)
    assert stage.told("SpecChanged") == ("False", "Taken")
    stage.change("worker-1", evicted)
    assert stage.status.incarnations == {"worker-1": 1}


def test_no_order_to_run_is_ever_given_to_pods_of_two_specs() -> None:
    stage = edit(a_running_group(2), image="other").change("worker-1", evicted)
    stage.call_in("worker-1")  # the new pod is quicker than the old one, whose ranks are being ended
    old = stage.replica("worker-0")
    assert old.revision != stage.replica("worker-1").revision
    assert {orders.verb for uid, orders in stage.orders.items() if uid in living(stage)} == {Verb.WAIT}
    stage.obey()
    assert of_the_present_spec(stage)


def living(stage: Stage) -> set[str]:
    """The uids of pods that are alive."""
    return {replica.uid for replica in stage.replicas.values() if replica.alive}


def test_an_agent_that_is_not_heard_any_more_is_not_waited_for() -> None:
    stage = edit(a_running_group(2), image="other").change("worker-1", evicted)
    stage.change("worker-0", lambda replica: dataclasses.replace(replica, silent_seconds=11.0))
    assert of_the_present_spec(stage)


def test_the_cause_of_a_failure_is_heard_before_pods_are_made_anew() -> None:
    stage = edit(a_running_group(2), image="other")
    error = a_death(rank=0, signal=None, exit_code=1)
    stage.rank_dies("worker-0", error)
    assert not of_the_present_spec(stage), "worker-1 still ends its ranks, and may tell more"
    stage.rank_dies("worker-1", a_death(rank=1))
    assert of_the_present_spec(stage)


def test_another_size_and_another_image_together_are_one_attempt() -> None:
    stage = a_running_group(2)
    role = stage.job.spec.workers.model_copy(update={"replicas": 3, "image": "other"})
    stage.respec(workers=role).obey()
    assert of_the_present_spec(stage)
    stage.train()
    assert (stage.status.phase, stage.status.attempt, len(stage.replicas)) == (Phase.RUNNING, 2, 3)


def test_ranks_save_before_a_resize_after_which_nothing_is_left_in_memory() -> None:
    stage = a_running_group(2)
    stage.respec(workers=stage.job.spec.workers.model_copy(update={"replicas": 1, "image": "other"}))
    assert stage.orders["uid-digits-worker-0-0"].grace_seconds >= 20


def test_spares_and_workers_that_are_missed_take_it_while_the_group_trains() -> None:
    stage = edit(a_stage(2, scheduling={"spares": 1}).train(), image="other")
    assert stage.status.incarnations == {"worker-2": 1}
    assert stage.told("SpecChanged") == ("True", "NextAttempt")
    stage = a_stage(3, elasticity={"minReplicas": 2, "maxReplicas": 3}).settle().call_in("worker-0", "worker-1")
    stage.wait(61).obey("worker-0", "worker-1")
    assert edit(stage, image="other").status.incarnations == {"worker-2": 1}
    stage.call_in("worker-2").obey()
    assert of_the_present_spec(stage.train())


def test_a_resumed_job_is_of_the_present_spec() -> None:
    stage = edit(a_running_group(2), image="other").respec(suspend=True).respec(suspend=False)
    assert of_the_present_spec(stage)
    assert stage.told("SpecChanged") == ("False", "Taken")


def test_a_job_that_ends_first_says_that_the_change_came_too_late() -> None:
    stage = edit(a_running_group(2), image="other").finish().wait(100)
    assert stage.told("SpecChanged") == ("False", "JobEnded")
    assert "resumeFrom" in stage.events[-1].message


def test_pods_of_an_operator_that_wrote_no_revision_are_left_alone() -> None:
    stage = a_running_group(2)
    for replica in list(stage.replicas.values()):
        stage.replicas[replica.name] = dataclasses.replace(replica, revision="")
    assert edit(stage, image="other").told("SpecChanged") == ("", "")


# Where members come and go one by one.


def test_a_lost_member_of_an_older_spec_means_another_attempt_for_all() -> None:
    stage = edit(a_parameter_server_job(workers=3), image="other")
    assert stage.told("SpecChanged") == ("True", "NextAttempt")
    stage.vanish("worker-1")
    assert (stage.status.attempt, stage.status.phase) == (2, Phase.RESTARTING)
    stage.obey()
    assert workers_of(stage) == {revision.revision_of(stage.job, names.WORKER)}


@pytest.mark.parametrize("who", ["worker-1", "parameterServer-1"])
@pytest.mark.parametrize("role", ["workers", "parameterServers"])
def test_a_rank_that_dies_after_an_edit_means_another_attempt_for_all(who: str, role: str) -> None:
    """The edit may be what corrects its death; alone, in its old pod, it would die until the job is given up."""
    stage = a_parameter_server_job(workers=2, servers=2)
    spec = stage.job.spec.to_dict()
    parsed = TrainingJob.parse({"spec": {**spec, role: {**spec[role], "memory": "64Gi"}}}).spec
    stage.respec(workers=parsed.workers, parameter_servers=parsed.parameter_servers)
    assert stage.told("SpecChanged") == ("True", "NextAttempt")
    stage.dies(who)
    assert (stage.status.attempt, stage.status.phase) == (2, Phase.RESTARTING)
    stage.obey()
    assert {one.revision for one in stage.replicas.values() if one.alive} == {
        revision.revision_of(stage.job, names.WORKER),
        revision.revision_of(stage.job, names.PARAMETER_SERVER),
    }
    assert stage.told("SpecChanged") == ("False", "Taken")
    assert stage.status.restart_count == 1


def test_a_rank_that_dies_without_an_edit_starts_again_alone() -> None:
    stage = a_parameter_server_job(workers=2, servers=2).dies("worker-1")
    assert (stage.status.attempt, stage.status.phase) == (1, Phase.RUNNING)


def test_a_member_of_another_spec_does_not_join() -> None:
    stage = edit(a_parameter_server_job(workers=2), image="other").scale(3)
    assert stage.status.attempt == 1, "whoever is added is not there yet"
    stage.call_in("worker-2")
    assert (stage.status.attempt, stage.status.phase) == (2, Phase.RESIZING)
    assert not stage.status.restarts


def test_a_member_whose_pod_waits_is_helped_by_an_edit() -> None:
    stage = a_parameter_server_job(workers=2).scale(3)
    edit(stage.change("worker-2", lambda replica: pending(replica, "Unschedulable")), cpu="1")
    assert stage.status.incarnations == {"worker-2": 1}
    assert stage.status.phase == Phase.RUNNING


def workers_of(stage: Stage) -> set[str]:
    """The revisions of workers that are alive."""
    return {one.revision for one in stage.replicas.values() if one.alive and one.role == names.WORKER}


# The text.


def test_defaults_that_are_written_out_change_nothing() -> None:
    plain, explicit = a_job().build(), a_job().where(checkpoint={"keep": 3, "everySteps": 50}, reproducible=False)
    assert revision.revision_of(plain, names.WORKER) == revision.revision_of(explicit.build(), names.WORKER)


def test_the_order_of_members_changes_nothing_and_their_place_names_the_field() -> None:
    one = a_job().with_workers(1, nodeSelector={"a": "1", "b": "2"}).build()
    other = a_job().with_workers(1, nodeSelector={"b": "2", "a": "1"}).build()
    assert revision.revision_of(one, names.WORKER) == revision.revision_of(other, names.WORKER)
    kept = a_job().with_workers(1).where(checkpoint={"keep": 7}).build()
    told = revision.changed(revision.revision_of(one, names.WORKER), revision.revision_of(kept, names.WORKER))
    assert told == ("spec.checkpoint.keep", "spec.workers.nodeSelector")
