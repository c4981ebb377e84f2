"""A node that fails a job again and again is avoided by it, for a while, and never so that nothing is left."""

import dataclasses

import pytest
from trainmaster.core.states.observed import Obstacle

from tests.builders import a_death, an_error, evicted, pending
from tests.core.stage import Stage, a_running_group


def fails_on_node_1(stage: Stage, times: int, wait: float = 60) -> Stage:
    """A rank of worker-1 dies so often, each time a bit further."""
    for _ in range(times):
        step = stage.status.attempt * 3
        stage.rank_dies("worker-1", a_death(stage.status.attempt, step=step)).wait(wait).call_in().obey(step=step)
    return stage


def elsewhere(stage: Stage, node: str = "node-9") -> Stage:
    """The scheduler puts the new pods there."""
    for name, replica in stage.replicas.items():
        if replica.incarnation and replica.node == "node-1":
            stage.replicas[name] = dataclasses.replace(replica, node=node)
    return stage


def test_three_failures_on_one_node_and_it_is_avoided() -> None:
    stage = fails_on_node_1(a_running_group(workers=3), 2)
    assert not stage.status.avoided_nodes
    stage.rank_dies("worker-1", a_death(3, step=9))
    (avoided,) = stage.status.avoided_nodes
    assert (avoided.node, (avoided.until - stage.now).total_seconds(), avoided.lifted) == ("node-1", 3600, False)
    assert avoided.reason == "3 failures of this job within 1h00m, the last one: rank 0 ended with SIGKILL."
    assert "Node node-1 is avoided for 1h00m." in (stage.status.message or "")
    assert stage.status.incarnations == {"worker-1": 1}
    assert stage.created[-1] == "digits-worker-1-1"
    assert "digits-worker-1-0" not in stage.replicas
    assert elsewhere(stage).call_in().obey(step=9).status.phase == "Running"
    assert (stage.status.attempt, stage.status.restart_count) == (4, 3), "the move costs no further attempt"


def test_it_expires() -> None:
    stage = elsewhere(fails_on_node_1(a_running_group(workers=3), 3))
    assert stage.wait(3500).status.avoided_nodes
    assert stage.wait(100).status.avoided_nodes == ()


@pytest.mark.parametrize("wait", [1900])
def test_failures_of_long_ago_do_not_count(wait: float) -> None:
    assert fails_on_node_1(a_running_group(workers=3), 3, wait).status.avoided_nodes == ()


def test_disruptions_do_not_count() -> None:
    stage = a_running_group(workers=3)
    for _ in range(4):
        stage.change("worker-1", evicted).call_in().obey()
    assert stage.status.avoided_nodes == ()


def test_a_job_that_fails_everywhere_blames_no_node() -> None:
    stage = a_running_group(workers=3)
    for number in range(9):
        step = 3 * number
        key = f"worker-{number % 3}"
        stage.rank_dies(key, an_error(f"{'abcdefghi'[number]}", stage.status.attempt, step=step)).obey(step=step)
    assert stage.status.avoided_nodes == ()


def test_with_all_replicas_on_one_node_there_is_nothing_to_compare_with() -> None:
    stage = a_running_group(workers=2)
    for name, replica in stage.replicas.items():
        stage.replicas[name] = dataclasses.replace(replica, node="node-1")
    assert fails_on_node_1(stage, 4).status.avoided_nodes == ()


def no_room(stage: Stage) -> Stage:
    """The scheduler finds no node but the one that is avoided."""
    words = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient cpu."
    since = stage.now.timestamp()

    def waits(replica: object) -> object:
        obstacle = Obstacle("Unschedulable", words, since)
        return dataclasses.replace(pending(replica, "Unschedulable"), obstacle=obstacle)  # type: ignore[arg-type]

    return stage.change("worker-1", waits)  # type: ignore[arg-type]


def test_it_is_lifted_where_there_is_no_room_elsewhere_and_not_taken_up_again() -> None:
    stage = fails_on_node_1(a_running_group(workers=3), 2).rank_dies("worker-1", a_death(3, step=9))
    assert no_room(stage).wait(59).status.avoided_nodes[0].lifted is False
    (avoided,) = stage.wait(1).status.avoided_nodes
    assert avoided.lifted
    assert "no room elsewhere: 0/3 nodes" in avoided.reason
    assert stage.created[-1] == "digits-worker-1-2", "a pod without the affinity"
    stage.call_in().obey(step=9)
    assert fails_on_node_1(stage, 1).status.incarnations == {"worker-1": 2}


def test_an_operator_that_dies_in_between_makes_nothing_of_it_twice() -> None:
    stage = fails_on_node_1(a_running_group(workers=3), 3)
    before = stage.status.avoided_nodes
    stage.operator_restarts().call_in().obey()
    assert stage.status.avoided_nodes == before
    assert stage.status.incarnations == {"worker-1": 1}
