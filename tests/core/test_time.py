"""What the clock decides: deadline, goodbye, TTL, the time that an obstacle is given."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.core.decide import decide
from trainmaster.core.states.actions import DeleteJob, DeleteReplica
from trainmaster.core.states.observed import Observed, Obstacle, Replica

from tests.builders import NOON, a_job, a_replica, ended, evicted, pending
from tests.core.stage import Stage, a_running_group, a_stage


def blocked(reason: str, since: float | None = None) -> Callable[[Replica], Replica]:
    """The replica cannot start for this reason."""
    return lambda replica: pending(replica, reason, since=since)


# The deadline.


def test_a_job_that_is_not_done_by_its_deadline_fails() -> None:
    stage = a_running_group(workers=1, activeDeadlineSeconds=60)
    assert stage.wait(59).status.phase == Phase.RUNNING
    assert stage.wake_at == NOON + timedelta(seconds=60)
    assert stage.wait(1).status.reason == "DeadlineExceeded"


def test_waiting_counts_too_and_it_is_told_what_for() -> None:
    stage = a_stage(workers=1, activeDeadlineSeconds=60).settle()
    assert stage.wake_at == NOON + timedelta(seconds=60)
    words = "0/2 nodes are available: 2 Insufficient cpu."
    stage.change("worker-0", lambda replica: pending(replica, "Unschedulable", words)).wait(60)
    assert stage.status.reason == "DeadlineExceeded"
    assert words in (stage.status.message or "")
    assert "train fewer steps" not in (stage.status.message or "")


def test_a_deadline_that_comes_while_a_group_gathers_again_tells_what_ended_it() -> None:
    stage = a_running_group(workers=2, activeDeadlineSeconds=60).change("worker-1", evicted)
    assert stage.wait(60).status.message == (
        "Not done within spec.activeDeadlineSeconds (60 s). Attempt 2 had not begun after worker-1: "
        "EvictionByEvictionAPI: digits-worker-1-0. Waiting for worker-1."
    )


def test_who_finished_in_time_has_finished() -> None:
    stage = a_running_group(workers=1, activeDeadlineSeconds=60)
    stage.now += timedelta(seconds=61)
    assert stage.finish().status.phase == Phase.SUCCEEDED


def test_suspension_stops_the_deadline_and_resuming_begins_it_anew() -> None:
    stage = a_running_group(workers=1, activeDeadlineSeconds=60)
    stage.respec(suspend=True).wait(1000)
    assert stage.status.phase == Phase.SUSPENDED
    assert stage.respec(suspend=False).train().wait(59).status.phase == Phase.RUNNING
    assert stage.wait(1).status.reason == "DeadlineExceeded"


# After the end.


def test_agents_get_time_to_leave_and_the_deaf_are_deleted() -> None:
    stage = a_running_group(workers=2).finish()
    assert stage.wait(29).replicas
    assert stage.wake_at == NOON + timedelta(seconds=30)
    assert not stage.wait(1).replicas


def test_replicas_that_never_started_are_deleted_at_once() -> None:
    stage = a_stage(workers=2, activeDeadlineSeconds=60).settle().call_in("worker-0").wait(60)
    assert set(stage.replicas) == {"digits-worker-0-0"}


def test_the_job_goes_after_its_ttl() -> None:
    stage = a_running_group(workers=1, ttlSecondsAfterFinished=100).finish().wait(30)
    assert stage.wake_at == NOON + timedelta(seconds=100)
    assert not stage.job_deleted
    assert stage.wait(70).job_deleted


def test_without_a_ttl_it_stays_and_nobody_looks_again() -> None:
    stage = a_running_group(workers=1).finish().wait(31)
    assert not stage.wait(10**8).job_deleted
    assert stage.wake_at is None


@pytest.mark.parametrize("after", [31, 10_000])
def test_what_the_world_is_slow_to_do_is_asked_for_again_but_not_in_a_hurry(after: int) -> None:
    stage = a_running_group(workers=1, ttlSecondsAfterFinished=40).finish()
    stage.now += timedelta(seconds=after)
    decision = stage.decide()
    assert any(isinstance(action, DeleteReplica) for action in decision.actions)
    assert (DeleteJob() in decision.actions) == (after > 40)
    assert decision.wake_at
    assert decision.wake_at - stage.now >= timedelta(seconds=5)


# Obstacles.


@pytest.mark.parametrize("reason", ["InvalidImageName", "Invalid"])
def test_what_is_hopeless_ends_the_job_at_once(reason: str) -> None:
    stage = a_stage(workers=2).settle().change("worker-1", blocked(reason))
    assert (stage.status.phase, stage.status.reason) == (Phase.FAILED, reason)


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "VolumeMissing", "CrashLoopBackOff", "NobodyKnows"])
def test_what_may_not_be_waited_for_without_end_is_given_its_time(reason: str) -> None:
    stage = a_stage(workers=2, failurePolicy={"startSeconds": 300}).settle().change("worker-1", blocked(reason))
    assert stage.wait(299).status.phase == Phase.PENDING
    assert stage.wake_at == NOON + timedelta(seconds=300)
    assert stage.wait(1).status.reason == reason


def test_what_every_pod_passes_through_is_an_obstacle_only_if_it_lasts() -> None:
    stage = a_stage(workers=1, failurePolicy={"startSeconds": 300}).settle()
    stage.change("worker-0", blocked("MountsNotReady", since=stage.now.timestamp()))
    assert "MountsNotReady" not in {condition.reason for condition in stage.status.conditions}
    assert stage.wait(14).wake_at == NOON + timedelta(seconds=15)
    assert "MountsNotReady" in {condition.reason for condition in stage.wait(1).status.conditions}
    assert stage.wait(285).status.reason == "MountsNotReady"


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_what_may_be_progress_is_waited_for_without_end_but_not_without_a_word(reason: str) -> None:
    """An image of 30 GB, an init container that fetches the data: nobody can tell them from what stands still."""
    stage = a_stage(workers=2, failurePolicy={"startSeconds": 300}).settle()
    stage.change("worker-0", blocked(reason, since=stage.now.timestamp())).wait(59)
    assert stage.told("ReplicasReady") == ("False", "WaitingForReplicas")
    assert stage.wait(1).told("ReplicasReady") == ("False", reason)
    assert (stage.events[-1].type, stage.events[-1].reason) == ("Normal", reason)
    assert "spec.activeDeadlineSeconds bounds all waiting" in (stage.status.message or "")
    assert stage.wait(86_400).status.phase == Phase.PENDING
    stage.change("worker-1", blocked("ImagePullBackOff", since=stage.now.timestamp()))
    assert stage.told("ReplicasReady") == ("False", "ImagePullBackOff"), "what is surely wrong is said first"
    assert stage.wait(300).status.reason == "ImagePullBackOff"


def test_a_scheduler_that_does_not_run_is_waited_for_and_named() -> None:
    stage = a_stage(workers=1, failurePolicy={"startSeconds": 300}).settle()
    stage.change("worker-0", blocked("NotScheduled", since=stage.now.timestamp())).wait(30)
    assert stage.told("ReplicasReady") == ("False", "NotScheduled")
    assert "correct schedulerName in spec.workers.template" in (stage.status.message or "")
    assert stage.wait(86_400).status.phase == Phase.PENDING


def test_a_claim_that_serves_one_pod_at_a_time_is_told_with_every_cure_and_given_its_time() -> None:
    """Another pod of the job may have it, or one that is still ending: then time helps."""
    stage = a_stage(workers=2, failurePolicy={"startSeconds": 300}).settle()
    stage.change("worker-1", blocked("ClaimOfOnePod", since=stage.now.timestamp()))
    assert stage.told("ReplicasReady") == ("False", "ClaimOfOnePod")
    for cure in ("ReadWriteMany", "spec.workers.replicas: 1", "ephemeral: {volumeClaimTemplate"):
        assert cure in (stage.status.message or "")
    assert stage.wait(299).status.phase == Phase.PENDING
    assert stage.wait(1).status.reason == "ClaimOfOnePod"
    assert "volumeClaimTemplate" in (stage.status.message or "")


def test_a_node_that_does_not_take_up_its_pod_is_an_obstacle_soon() -> None:
    stage = a_stage(workers=1, failurePolicy={"startSeconds": 300}).settle()
    stage.change("worker-0", blocked("NodeNotResponding", since=stage.now.timestamp())).wait(29)
    assert stage.told("ReplicasReady") == ("False", "WaitingForReplicas")
    assert stage.wait(1).told("ReplicasReady") == ("False", "NodeNotResponding")
    assert stage.wait(270).status.reason == "NodeNotResponding"


def test_help_that_comes_in_time_helps() -> None:
    stage = a_stage(workers=2).settle().change("worker-1", blocked("ImagePullBackOff")).wait(500)
    assert stage.train().wait(1000).status.phase == Phase.RUNNING


def test_a_full_cluster_is_waited_for_without_end() -> None:
    stage = a_stage(workers=2).settle().change("worker-1", blocked("Unschedulable"))
    assert stage.wait(10**7).status.phase == Phase.PENDING
    assert stage.wake_at is None


def test_so_is_a_full_namespace_and_people_are_told_what_they_can_do() -> None:
    stage = a_stage(workers=2).refuse("worker-1", reason="QuotaExceeded").settle().wait(10**7)
    assert (stage.status.phase, stage.told("ReplicasReady")) == (Phase.PENDING, ("False", "QuotaExceeded"))
    (event,) = [event for event in stage.events if event.reason == "QuotaExceeded"]
    assert "room in the namespace's ResourceQuota" in event.message
    assert stage.refuse().train().status.phase == Phase.RUNNING


def test_after_a_long_wait_for_room_an_image_gets_its_full_time() -> None:
    stage = a_stage(workers=1).settle().change("worker-0", blocked("Unschedulable")).wait(10_000)
    stage.change("worker-0", blocked("ErrImagePull", since=stage.now.timestamp()))
    assert stage.wait(599).status.phase == Phase.PENDING
    assert stage.wait(1).status.reason == "ErrImagePull"


def test_a_refusal_on_the_second_day_is_timed_from_then() -> None:
    stage = a_running_group(workers=2).wait(100_000).vanish("worker-1")
    stage.replicas.pop("digits-worker-1-1")
    stage.refused = (Obstacle("Forbidden", "violates PodSecurity"),)
    stage.created.clear()
    decision = stage.decide()
    assert decision.status.phase == Phase.RESTARTING
    stage.now += timedelta(seconds=600)
    assert stage.decide().status.reason == "Forbidden"


def test_the_message_names_cause_and_cure() -> None:
    stage = a_stage(workers=1).settle()
    stage.change("worker-0", lambda replica: pending(replica, "VolumeMissing", 'claim "data" not found')).wait(5)
    assert stage.status.message == (
        'claim "data" not found. Create the claim, or correct spec.checkpoint.storage or spec.workers.volumes.'
    )


# Suspension.


def test_a_suspended_job_has_no_replicas_and_keeps_what_it_has() -> None:
    stage = a_running_group(workers=2, step=70).respec(suspend=True)
    assert (stage.status.phase, stage.replicas) == (Phase.SUSPENDED, {})
    assert stage.status.progress
    assert stage.status.progress.step == 70


def test_a_suspension_keeps_pods_that_ended_before_for_their_logs() -> None:
    stage = a_running_group(workers=2).change("worker-1", lambda one: ended(one, 1, message="KeyError"))
    stage.train().respec(suspend=True)
    assert [(one.name, one.alive) for one in stage.replicas.values()] == [("digits-worker-1-0", False)]
    stage.respec(suspend=False).train()
    assert stage.status.phase == Phase.RUNNING
    assert {"digits-worker-1-0", "digits-worker-1-1"} <= set(stage.replicas)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"checkpoint": {"storage": {"path": "/data"}}}, "to go on from the newest checkpoint"),
        ({}, "begins anew on a cluster: without spec.checkpoint.storage"),
        ({"training": {"command": ["python", "train.py"]}}, "to start the command again"),
    ],
)
def test_a_suspended_job_says_what_it_will_go_on_from(spec: dict[str, Any], words: str) -> None:
    stage = a_running_group(workers=2, **spec).respec(suspend=True)
    assert words in (stage.status.message or "")


def test_a_job_that_is_resumed_at_once_has_none_of_its_old_replicas() -> None:
    """They may have been made for another training."""
    stage = a_running_group(workers=2)
    for suspend in (True, False):
        stage.job = stage.job.model_copy(update={"spec": stage.job.spec.model_copy(update={"suspend": suspend})})
        stage.turn()
    stage.train()
    assert stage.status.phase == "Running"
    assert stage.created == 2 * ["digits-worker-0-0", "digits-worker-1-0"]


def test_a_job_may_be_born_suspended() -> None:
    stage = a_stage(workers=2, suspend=True).settle()
    assert (stage.status.phase, stage.created) == (Phase.SUSPENDED, [])
    assert stage.respec(suspend=False).train().status.phase == Phase.RUNNING


def test_resuming_is_an_attempt_of_its_own_but_no_restart() -> None:
    stage = a_running_group(workers=2).respec(suspend=True).respec(suspend=False).train()
    assert (stage.status.attempt, stage.status.restart_count, stage.status.restarts) == (2, 0, ())


def test_ranks_that_may_have_started_unheard_make_it_an_attempt_of_its_own_too() -> None:
    stage = a_stage(workers=1).settle().call_in().respec(suspend=True)
    assert stage.status.attempt == 2


def test_old_replicas_that_are_still_going_are_not_taken_for_new_ones() -> None:
    stage = a_running_group(workers=1)
    old = dataclasses.replace(stage.replica("worker-0"), deleting=True)
    stage.respec(suspend=True)
    stage.replicas[old.name] = old
    stage.respec(suspend=False)
    assert stage.created[-1] == "digits-worker-0-1"


def test_an_ended_job_is_neither_suspended_nor_resumed() -> None:
    stage = a_running_group(workers=1).finish().respec(suspend=True)
    assert stage.status.phase == Phase.SUCCEEDED


GANG = {"gang": "Kueue", "queue": "team-a"}


def test_a_job_that_cannot_be_trained_yet_says_so_and_fails() -> None:
    stage = Stage(a_job().where(scheduling=GANG)).settle()
    assert (stage.status.phase, stage.status.reason, stage.created) == (Phase.FAILED, "NotYetSupported", [])
    assert stage.told("NotYetSupported") == ("True", "NotYetSupported"), "nothing is ignored: the job is refused"
    assert "spec.scheduling.gang" in (stage.status.message or "")


def test_other_wishes_that_come_later_are_named_in_a_condition() -> None:
    stage = a_running_group(workers=1).respec(scheduling=a_job().where(scheduling=GANG).build().spec.scheduling)
    assert stage.status.phase == Phase.RUNNING
    (condition,) = [c for c in stage.status.conditions if c.type == "NotYetSupported"]
    assert "spec.scheduling.gang" in condition.message
    assert [event.reason for event in stage.events].count("NotYetSupported") == 1


def test_what_is_due_within_this_millisecond_is_not_looked_at_in_a_circle() -> None:
    """A status knows milliseconds, a clock more: the pause of a replica that keeps ending is over in between."""
    began = NOON.timestamp() + 0.000704
    job = a_job().with_workers(1).at(Phase.RESTARTING, attempt=3, incarnations={"worker-0": 2}).build()
    left = [ended(dataclasses.replace(a_replica(incarnation=number), created=began), 137) for number in (0, 1)]
    now = NOON + timedelta(seconds=5, microseconds=704)
    decision = decide(job, Observed(tuple(left), frozenset({"Service"})), now)
    assert decision.wake_at
    assert decision.wake_at > now
