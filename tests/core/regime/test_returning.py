"""What the failure of a member cost that starts again alone, of members that say what real ones do."""

from __future__ import annotations

import dataclasses

import pytest
from trainmaster.wire.messages import CheckpointRecord

from tests.builders import TASK, a_death, a_job, evicted
from tests.core.members_stage import Members, a_parameter_server_job
from tests.core.regime.test_members_together import together
from tests.core.report.test_goodput import goodput

SERVER, SECOND, THIRD = (f"parameterServer-{index}" for index in range(3))


def cost(stage: Members) -> list[tuple[tuple[str, ...] | None, int | None, float | None]]:
    """The lines of the ledger: who, how many steps, how many seconds."""
    return [(line.members, line.steps_lost, line.seconds_lost) for line in stage.status.restarts]


def a_task(servers: int, workers: int = 2) -> Members:
    """All train, and have come to step 100, with a checkpoint of step 60."""
    stage = a_parameter_server_job(workers=workers, servers=servers, training=TASK)
    record = CheckpointRecord(60, 0.0, "abc")
    stage.say(SERVER, lambda beat: dataclasses.replace(beat, checkpoint=record))
    return Members.tell(stage.wait(100), step=100)  # type: ignore[arg-type]


def test_two_deaths_with_training_in_between_are_two() -> None:
    stage = together(a_task(servers=2), a_death(step=100), "worker-0")
    stage.wait(1)
    stage.load("worker-0").wait(2)
    assert cost(stage) == [(("worker-0",), 0, None)], "it loads"
    stage.follow("worker-0", step=110).wait(10)
    together(stage, a_death(step=120), "worker-1")
    assert cost(stage) == [(("worker-0",), 0, 3.0), (("worker-1",), 0, None)]
    assert stage.status.restart_count == 2


def test_the_line_of_who_is_back_does_not_wait_for_another() -> None:
    stage = a_task(servers=2)
    stage.change("worker-1", evicted).wait(5)
    together(stage, a_death(step=100), "worker-0").wait(2)
    stage.follow("worker-0", step=101)
    assert cost(stage) == [(("worker-1",), 0, None), (("worker-0",), 0, 2.0)]


def test_while_a_server_is_away_nobody_trains() -> None:
    stage = together(a_task(servers=2), a_death(step=100), SECOND).wait(4)
    stage.load(SECOND).wait(6)  # type: ignore[attr-defined]
    stage.follow(SECOND, step=100)  # type: ignore[attr-defined]
    assert cost(stage) == [((SECOND,), 0, 10.0)]  # type: ignore[arg-type]
    spent = goodput(stage)
    assert (spent.training, spent.recovering, spent.lost_work) == (100, 10, 0)


def test_a_server_that_is_back_after_the_end_changes_nothing() -> None:
    stage = together(a_task(servers=2), a_death(step=100), SECOND).wait(1)
    stage.load(SECOND).wait(2).finish("worker-0", "worker-1")  # type: ignore[attr-defined]
    ended = stage.status
    assert ended.finished
    assert cost(stage) == [((SECOND,), 0, 3.0)], "until the end"  # type: ignore[arg-type]
    stage.tell(SECOND, step=100, phase="train", resumed_step=100).wait(20)  # type: ignore[attr-defined]
    assert stage.status.restarts == ended.restarts


def test_servers_that_are_lost_with_their_copy_set_all_back() -> None:
    stage = a_task(servers=3)
    together(stage, a_death(step=100), SECOND, THIRD).wait(2)
    stage.load(SECOND, THIRD)
    stage.tell("worker-0", "worker-1", phase="load").wait(3)
    stage.follow(SECOND, THIRD, step=60)
    stage.tell(SERVER, "worker-0", "worker-1", step=60, resumed_step=60, phase="train")
    assert cost(stage) == [((SECOND, THIRD), 40, 5.0)]
    assert "It went on from step 60." in stage.status.restarts[0].why
    spent = goodput(stage)
    assert [spent.training, spent.lost_work, spent.recovering] == pytest.approx([60, 40, 5], abs=1)
    stage.wait(20)
    together(stage, a_death(step=80), SECOND, THIRD)
    stage.follow(SECOND, THIRD, step=60)
    assert cost(stage)[1] == ((SECOND, THIRD), 20, 0.0)
    spent = goodput(stage)
    assert [spent.training, spent.lost_work] == pytest.approx([60, 60], abs=1), "lost as often as it is taken back"


def test_all_servers_lost_is_a_new_attempt_that_says_what_was_lost() -> None:
    stage = together(a_task(servers=2), a_death(step=100), SERVER, SECOND)
    assert stage.status.attempt == 2
    stage.call_in()
    stage.offer().load().wait(4)
    assert stage.told("Training") == ("False", "Loading")
    stage.follow(step=60)
    assert cost(stage) == [(None, 40, 4.0)]
    spent = goodput(stage)
    assert [spent.training, spent.lost_work, spent.recovering] == pytest.approx([60, 40, 4], abs=1)


def test_loading_is_no_training() -> None:
    stage = Members(a_job().where(strategy={"type": "ParameterServer"}, parameterServers={"replicas": 2}))
    stage.settle().call_in()
    stage.offer().load().wait(30)
    assert stage.told("Training") == ("False", "Loading")
    stage.follow(SERVER, SECOND, step=0).wait(5)
    assert stage.told("Training") == ("False", "Loading"), "no worker has been given anything to do"
    stage.follow("worker-0", step=0).wait(10)
    assert stage.told("Training") == ("True", "Running")
    assert goodput(stage.finish()).starting == 35


def test_members_of_whom_no_one_trains_begin_anew_together() -> None:
    """A new operator has not heard that the only other member waits for one that trains."""
    stage = Members(a_job().where(strategy={"type": "Gossip"}, training=TASK).with_workers(2))
    stage.settle().call_in()
    stage.offer().follow(step=100)
    stage.change("worker-1", evicted).call_in()
    stage.offer().operator_restarts()
    stage.change("worker-0", evicted)
    assert stage.status.phase == "Running", "worker-1 counts as training: it has not been heard yet"
    stage.wait(60).call_in()
    stage.offer()
    assert (stage.status.phase, stage.status.attempt) == ("Starting", 2)
    stage.follow(step=1, resumed_step=0).wait(5)
    assert stage.status.phase == "Running"
    (line,) = stage.status.restarts
    assert (line.members, line.steps_lost) == (None, 100)
    assert line.seconds_lost is not None
