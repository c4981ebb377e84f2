"""Members that end together, or again and again: what is one failure, who is put off, and who is moved."""

from __future__ import annotations

import dataclasses

import pytest
from trainmaster.core.states.observed import Obstacle
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import ErrorReport, ExitReport

from tests.builders import TASK, a_death, an_error, ended, evicted, saying
from tests.core.members_stage import Members, a_parameter_server_job
from tests.core.stage import a_running_group

RAISED = an_error("Invalid response from feature store", kind="RuntimeError", step=100)
NO_NAMES = an_error("[Errno -3] Temporary failure in name resolution", kind="gaierror", step=100)
BAD_DISK = an_error("[Errno 5] Input/output error: '/data/x'", kind="OSError", step=100)
NO_MEMORY = a_death(step=100, out_of_memory=True)


def together(stage: Members, report: ExitReport, *keys: str) -> Members:
    """All of these die of the same before anybody looks."""
    for key in keys:
        replica, start = stage.replica(key), stage.status.starts.get(key)
        assert replica.heartbeat
        told = dataclasses.replace(report, attempt=stage.status.attempt, start=start)
        died = dataclasses.replace(replica.heartbeat, state=AgentState.FAILED, exit=told)
        stage.replicas[replica.name] = saying(replica, died)
    stage.settle()
    return stage


def workers(number: int) -> list[str]:
    return [f"worker-{index}" for index in range(number)]


@pytest.mark.parametrize(
    ("number", "report"),
    [(2, RAISED), (2, NO_MEMORY), (12, BAD_DISK), (40, NO_NAMES)],
    ids=["error", "memory", "disk", "names"],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
def test_who_dies_of_the_same_at_about_one_time_is_one_failure(number: int, report: ExitReport, at_once: bool) -> None:
    stage = a_parameter_server_job(workers=number, training=TASK)
    for keys in [workers(number)] if at_once else [[key] for key in workers(number)]:
        together(stage, report, *keys).wait(1)
    assert (stage.status.phase, stage.status.attempt, stage.status.restart_count) == ("Running", 1, 1)
    (line,) = stage.status.restarts
    assert line.members == tuple(workers(number))
    assert f"Starting {', '.join(workers(number)[:4])}" in line.why
    assert {stage.orders_of(key).verb for key in workers(number)} == {Verb.RUN}
    assert {stage.status.starts[key] for key in workers(number)} == {1}


@pytest.mark.parametrize("report", [RAISED, NO_MEMORY], ids=["error", "memory"])
def test_the_same_after_their_own_restart_is_twice(report: ExitReport) -> None:
    stage = together(a_parameter_server_job(training=TASK), report, "worker-0", "worker-1")
    together(stage.follow(step=100), report, "worker-1")
    assert stage.status.phase == "Failed"
    assert "came twice at step 100" in (stage.status.message or "")


def test_who_dies_again_before_the_others_train_is_twice_too() -> None:
    stage = together(a_parameter_server_job(training=TASK), RAISED, "worker-0", "worker-1")
    together(stage.follow("worker-0", step=100), RAISED, "worker-0")
    assert stage.status.phase == "Failed"


def test_the_same_much_later_is_another_failure() -> None:
    stage = together(a_parameter_server_job(), a_death(), "worker-0")
    together(stage.wait(61), a_death(), "worker-1")  # type: ignore[arg-type]
    assert stage.status.restart_count == 2
    assert [line.members for line in stage.status.restarts] == [("worker-0",), ("worker-1",)]
    assert [line.seconds_lost for line in stage.status.restarts] == [None, None], "neither trains yet"
    stage.wait(3)
    stage.follow()
    assert [line.seconds_lost for line in stage.status.restarts] == [64, 3]


def test_who_has_a_line_of_its_own_does_not_join_another() -> None:
    stage = together(a_parameter_server_job(workers=3), a_death(), "worker-0")
    together(stage.wait(61), a_death(), "worker-1")  # type: ignore[arg-type]
    together(stage.follow("worker-0"), a_death(), "worker-0")
    assert [line.members for line in stage.status.restarts] == [(), ("worker-1",), ("worker-0",)]


def test_a_trouble_that_goes_on_costs_one_restart_a_round() -> None:
    stage = a_parameter_server_job(workers=12, training=TASK)
    together(stage, BAD_DISK, *workers(12))
    for _ in range(2):  # the next one leaves its node
        while stage.orders_of("worker-0").verb == Verb.WAIT:
            stage.wait(1)
        for key in workers(12):
            together(stage.follow(key), BAD_DISK, key)
    assert (stage.status.phase, stage.status.restart_count) == ("Running", 3)
    assert [line.members for line in stage.status.restarts] == [(), (), tuple(workers(12))]


def test_an_eviction_in_between_does_not_part_them() -> None:
    stage = together(a_parameter_server_job(workers=4), NO_MEMORY, "worker-0")
    stage.wait(2).change("worker-1", evicted).wait(2)
    stage.change("worker-2", lambda replica: ended(replica, 137, "OOMKilled"))
    assert stage.status.phase == "Running"
    assert [(line.failure_class, line.members) for line in stage.status.restarts] == [
        ("OutOfMemory", ("worker-0", "worker-2")),
        ("Disruption", ("worker-1",)),
    ]


def test_a_pause_holds_for_each_member_whatever_happens_to_others() -> None:
    stage = a_parameter_server_job(workers=4, training=TASK)
    for _ in range(2):  # before the second restart of its kind, five seconds pass
        together(stage.follow(), BAD_DISK, "worker-0", "worker-1")
    together(stage.wait(1), a_death(), "worker-2")  # type: ignore[arg-type]
    assert [stage.orders_of(key).verb for key in workers(4)] == [Verb.WAIT, Verb.WAIT, Verb.RUN, Verb.RUN]
    assert stage.wake_at
    assert (stage.wake_at - stage.now).total_seconds() == 4
    stage.wait(4)
    assert {stage.orders_of(key).verb for key in workers(4)} == {Verb.RUN}


def test_one_member_is_named_in_its_newest_line_only() -> None:
    stage = together(a_parameter_server_job(), a_death(), "worker-0", "worker-1")
    stage.follow("worker-0")
    together(stage, an_error("other"), "worker-0")
    assert [line.members for line in stage.status.restarts] == [("worker-1",), ("worker-0",)]


def test_who_has_not_called_in_at_a_new_operator_is_not_moved() -> None:
    """It may train, whatever the ledger says of it."""
    stage = a_parameter_server_job(workers=4, training=TASK)
    stage.change("worker-2", lambda replica: dataclasses.replace(replica, node="node-1"))
    stage.change("worker-3", evicted)  # and finds no place: what follows is not over
    together(stage, a_death(step=20), "worker-1", "worker-2")
    for step in (30, 40):
        stage.follow("worker-1", "worker-2", step=step - 5).wait(120)
        together(stage, a_death(step=step), "worker-1")
    assert [one.node for one in stage.status.avoided_nodes] == ["node-1"]
    before = dict(stage.status.incarnations)
    assert before.keys() == {"worker-1", "worker-3"}
    stage.operator_restarts()
    assert stage.status.incarnations == before


def test_in_a_group_nobody_is_named() -> None:
    stage = a_running_group().rank_dies("worker-0", ExitReport(1, 0, 5, exit_code=1, error=ErrorReport("E", "e")))
    assert stage.status.restarts[0].members is None


# Nodes that are avoided.


def dies_on_node_1(stage: Members, times: int) -> Members:
    """worker-1, each time a bit further and a minute later."""
    for number in range(times):
        stage.follow(step=10 * number + 1)
        together(stage, a_death(step=10 * number + 2), "worker-1").wait(60)
    return stage


def test_a_member_that_starts_alone_leaves_the_node_that_fails_it() -> None:
    stage = dies_on_node_1(a_parameter_server_job(workers=3, training=TASK), 2)
    assert not stage.status.avoided_nodes
    stage.follow(step=25)
    together(stage, a_death(step=26), "worker-1")
    (avoided,) = stage.status.avoided_nodes
    assert (avoided.node, (avoided.until - stage.now).total_seconds()) == ("node-1", 3600)
    assert avoided.reason == "3 failures of this job within 1h00m, the last one: rank 0 ended with SIGKILL."
    assert stage.status.incarnations == {"worker-1": 1}, "nobody else is moved"
    assert (stage.status.phase, stage.status.attempt, stage.status.restart_count) == ("Running", 1, 3)
    assert "digits-worker-1-0" not in stage.replicas
    assert stage.created[-1] == "digits-worker-1-1"
    stage.change("worker-1", lambda replica: dataclasses.replace(replica, node="node-9")).call_in()
    stage.offer().follow(step=27)
    assert stage.line("worker-1") is not None
    assert stage.wait(10).status.restarts[-1].seconds_lost is not None


def test_who_trains_on_that_node_stays_until_it_fails_too() -> None:
    stage = a_parameter_server_job(workers=3, training=TASK)
    stage.change("worker-2", lambda replica: dataclasses.replace(replica, node="node-1"))
    dies_on_node_1(stage, 3)
    assert stage.status.incarnations == {"worker-1": 1}
    stage.change("worker-1", lambda replica: dataclasses.replace(replica, node="node-9")).call_in()
    together(stage.offer().follow(step=40), a_death(step=41), "worker-2")
    assert stage.status.incarnations == {"worker-1": 1, "worker-2": 1}
    assert "worker-2 leaves a node that is avoided." in (stage.status.message or "")


def test_who_has_begun_again_is_not_moved_any_more() -> None:
    """An operator that died between the two writes finds the member at work."""
    stage = dies_on_node_1(a_parameter_server_job(workers=3, training=TASK), 3)
    early = next(status for status in stage.writes if status.restart_count == 3)
    stage = dies_on_node_1(a_parameter_server_job(workers=3, training=TASK), 2)
    stage.follow(step=25)
    stage.job = stage.job.model_copy(update={"status": early})
    assert stage.status.starts["worker-1"] == 3
    beat = stage.replica("worker-1").heartbeat
    assert beat
    stage.change("worker-1", lambda replica: saying(replica, dataclasses.replace(beat, start=3)))
    assert (stage.status.incarnations, stage.status.avoided_nodes) == ({}, ())


def test_a_member_that_finds_no_room_elsewhere_comes_back() -> None:
    stage = dies_on_node_1(a_parameter_server_job(workers=3, training=TASK), 3)
    words = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient cpu."
    obstacle = Obstacle("Unschedulable", words, stage.now.timestamp())
    stage.change("worker-1", lambda replica: dataclasses.replace(replica, obstacle=obstacle))
    (avoided,) = stage.wait(60).status.avoided_nodes
    assert avoided.lifted
    assert stage.status.incarnations == {"worker-1": 2}
