"""A replica that cannot start on its node is tried on another one, if the job's others do start on theirs."""

import dataclasses
from datetime import timedelta

import pytest
from trainmaster.core.states.observed import Replica

from tests.builders import pending
from tests.core.stage import Stage, a_running_group, a_stage

PULL = "ImagePullBackOff"


def stuck(stage: Stage, key: str, reason: str = PULL, node: str = "broken") -> Stage:
    """The scheduler puts it there, and it does not start."""

    def lands(replica: Replica) -> Replica:
        told = pending(replica, reason, f"{reason} on {node}", since=stage.now.timestamp())
        return dataclasses.replace(told, node=node)

    return stage.change(key, lands)


@pytest.mark.parametrize("reason", [PULL, "CreateContainerError", "MountsNotReady"])
def test_a_lost_worker_that_lands_on_a_broken_node_ends_no_job(reason: str) -> None:
    stage = stuck(a_running_group(3).vanish("worker-1"), "worker-1", reason)
    assert stage.wait(199).status.incarnations == {"worker-1": 1}
    assert stage.wake_at == stage.now + timedelta(seconds=1)
    assert stage.wait(1).status.incarnations == {"worker-1": 2}
    (avoided,) = stage.status.avoided_nodes
    assert (avoided.node, avoided.reason) == ("broken", f"worker-1 could not start there: {reason} on broken.")
    assert "worker-1 could not start on its node. Node broken is avoided for 1h00m." in (stage.status.message or "")
    assert "digits-worker-1-1" not in stage.replicas
    assert stage.call_in().obey().status.phase == "Running"
    assert [line.failure_class for line in stage.status.restarts] == ["ReplicaDeleted"], "the move is no failure"


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "ImageNotMounted"])
def test_a_node_without_the_image_or_means_to_mount_it_is_left_at_once(reason: str) -> None:
    stage = stuck(a_running_group(3).vanish("worker-1"), "worker-1", reason)
    assert stage.status.incarnations == {"worker-1": 2}
    assert stage.call_in().obey().status.phase == "Running"


def test_at_a_first_start_it_is_left_too_whoever_is_seen_first() -> None:
    stage = stuck(a_stage(2).settle(), "worker-1", "ErrImageNeverPull").wait(20)
    assert stage.call_in("worker-0").status.incarnations == {"worker-1": 1}
    assert stuck(a_stage(2).settle(), "worker-1", "ErrImageNeverPull").wait(31).status.reason == "ErrImageNeverPull"


def test_that_time_is_kept_beside_one_who_is_given_longer() -> None:
    stage = stuck(a_stage(2).settle(), "worker-0", "CreateContainerConfigError", node="a")
    stuck(stage, "worker-1", "ErrImageNeverPull").wait(29)
    assert stage.wake_at == stage.now + timedelta(seconds=1)


def test_a_missing_secret_is_no_nodes_fault() -> None:
    stage = stuck(a_running_group(3).vanish("worker-1"), "worker-1", "CreateContainerConfigError").wait(599)
    assert (stage.status.avoided_nodes, stage.status.incarnations) == ((), {"worker-1": 1})


def test_three_broken_nodes_are_left_and_the_fourth_ends_the_job_in_its_time() -> None:
    stage = a_running_group(3).vanish("worker-1")
    for node in "abc":
        stuck(stage, "worker-1", node=node).wait(200)
    assert [avoided.node for avoided in stage.status.avoided_nodes] == ["a", "b", "c"]
    assert stuck(stage, "worker-1", node="d").wait(599).status.phase == "Restarting"
    assert stage.wait(1).status.reason == PULL


def test_all_that_are_stuck_on_a_node_leave_it_together() -> None:
    stage = a_running_group(4).vanish("worker-1").vanish("worker-2")
    stuck(stuck(stage, "worker-1"), "worker-2").wait(200)
    assert stage.status.incarnations == {"worker-1": 2, "worker-2": 1}, "one more for each"


def test_a_job_of_one_worker_that_once_trained_is_moved_too() -> None:
    stage = stuck(a_running_group(1).vanish("worker-0"), "worker-0").wait(200)
    assert [avoided.node for avoided in stage.status.avoided_nodes] == ["broken"]


def test_an_image_that_no_node_can_pull_moves_nobody() -> None:
    stage = a_stage(2).settle()
    stuck(stuck(stage, "worker-0", node="a"), "worker-1", node="b").wait(599)
    assert (stage.status.avoided_nodes, stage.status.incarnations) == ((), {})
    assert stage.wait(1).status.reason == PULL


def test_a_registry_that_is_away_from_a_job_that_once_trained_moves_nobody() -> None:
    stage = a_running_group(2).vanish("worker-0").vanish("worker-1")
    stuck(stuck(stage, "worker-0", node="a"), "worker-1", node="b").wait(599)
    assert stage.status.avoided_nodes == ()


def test_with_the_patience_of_a_day_a_job_still_ends_after_a_day() -> None:
    stage = a_running_group(3, failurePolicy={"startSeconds": 86_400}).vanish("worker-1")
    for node in "abc":
        stuck(stage, "worker-1", node=node).wait(600)
    stuck(stage, "worker-1", node="d")
    for _ in range(23):
        stage.wait(3600)
    assert (stage.status.incarnations, stage.status.avoided_nodes) == ({"worker-1": 4}, ())
    assert stage.wait(3600).status.reason == PULL


def test_a_spare_is_moved_while_the_others_train() -> None:
    stage = a_stage(2, scheduling={"spares": 1}).settle().call_in("worker-0", "worker-1").obey()
    stuck(stage, "worker-2").wait(200)
    assert stage.status.incarnations == {"worker-2": 1}
    assert stage.status.phase == "Running"


def test_a_node_without_another_is_used_again_while_the_others_train() -> None:
    """By a spare, and by a worker that an elastic group does without."""
    spare = a_stage(2, scheduling={"spares": 1}).settle().call_in("worker-0", "worker-1").obey()
    elastic = a_running_group(3, elasticity={"minReplicas": 2, "maxReplicas": 3}).vanish("worker-2").wait(61).obey()
    for stage in (spare, elastic):
        before = stuck(stage, "worker-2").wait(200).status.incarnations["worker-2"]
        stage.change("worker-2", lambda replica: pending(replica, "Unschedulable", "didn't match node affinity"))
        assert stage.wait(61).status.avoided_nodes[0].lifted
        assert (stage.status.phase, stage.status.incarnations["worker-2"]) == ("Running", before + 1)


def test_a_node_without_another_is_used_again() -> None:
    stage = stuck(a_running_group(3).vanish("worker-1"), "worker-1").wait(200)
    stage.change("worker-1", lambda replica: pending(replica, "Unschedulable", "didn't match node affinity"))
    assert stage.wait(61).status.avoided_nodes[0].lifted
    assert stuck(stage, "worker-1").wait(599).status.phase == "Restarting"
    assert stage.wait(1).status.reason == PULL
