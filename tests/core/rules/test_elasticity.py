"""Fewer workers than wished, within bounds: a group goes on without who does not come, and grows when all are there."""

from __future__ import annotations

import dataclasses

import pytest
from trainmaster.wire import messages
from trainmaster.wire.agent_states import Verb

from tests.builders import a_death, a_job, evicted
from tests.core.members_stage import SCRIPT, Members
from tests.core.situation.test_silence import silent
from tests.core.stage import Stage, a_stage

BOUNDS = {"minReplicas": 2, "maxReplicas": 4}


def an_elastic_group(workers: int = 3) -> Stage:
    return a_stage(workers, elasticity=BOUNDS).train()


def without_one() -> Stage:
    """A group that has gone on without worker-1, whose next pod finds no place."""
    stage = an_elastic_group()
    stage.change("worker-1", evicted)
    stage.wait(61)
    return stage.obey("worker-0", "worker-2")


def test_a_group_waits_a_minute_then_goes_on_without() -> None:
    stage = an_elastic_group()
    stage.change("worker-1", evicted)
    stage.wait(59)
    assert (stage.status.phase, stage.status.absent) == ("Restarting", ())
    stage.wait(2)
    assert stage.status.absent == ("worker-1",)
    stage.obey("worker-0", "worker-2")
    assert (stage.status.phase, stage.status.attempt) == ("Running", 2)
    roster = stage.orders[stage.replica("worker-0").uid].roster
    assert roster is not None
    assert [(one.index, one.first_rank) for one in roster.members] == [(0, 0), (2, 1)]
    assert stage.status.replicas is not None
    assert stage.status.replicas.summary == "2/3"
    assert stage.status.restart_count == 1


def test_without_bounds_it_waits_for_ever() -> None:
    stage = a_stage(3).train()
    stage.change("worker-1", evicted)
    stage.wait(3600)
    assert (stage.status.phase, stage.status.absent) == ("Restarting", ())


def test_never_with_fewer_than_the_least() -> None:
    stage = an_elastic_group()
    for key in ("worker-1", "worker-2"):
        stage.change(key, evicted)
    stage.wait(3600)
    assert (stage.status.phase, stage.status.absent) == ("Restarting", ())
    stage.call_in("worker-2")
    stage.wait(61)
    assert stage.status.absent == ("worker-1",)


def test_it_grows_when_all_are_there_and_ranks_save_first() -> None:
    stage = without_one()
    stage.call_in("worker-1")
    assert (stage.status.attempt, stage.status.absent) == (3, ())
    assert stage.status.restart_count == 1, "a resize costs nothing"
    assert len(stage.status.restarts) == 1
    stage.obey()
    assert stage.status.phase == "Running"
    roster = stage.orders[stage.replica("worker-1").uid].roster
    assert roster is not None
    assert len(roster.members) == 3


def without_two() -> Stage:
    stage = an_elastic_group(4)
    for key in ("worker-1", "worker-3"):
        stage.change(key, evicted)
    stage.wait(61)
    return stage.obey("worker-0", "worker-2")


def test_it_grows_with_those_who_are_there_when_the_others_do_not_come() -> None:
    stage = without_two()
    stage.call_in("worker-3")
    stage.wait(590)
    assert (stage.status.attempt, stage.status.absent) == (2, ("worker-1", "worker-3")), (
        "the other one may be on its way"
    )
    stage.wait(20)
    assert (stage.status.attempt, stage.status.absent) == (3, ("worker-1",))
    stage.obey("worker-0", "worker-2", "worker-3")
    assert (stage.status.phase, stage.status.absent) == ("Running", ("worker-1",))
    stage.call_in("worker-1")
    assert (stage.status.attempt, stage.status.absent) == (4, ())
    assert stage.status.restart_count == 1


def test_who_does_not_come_at_all_stops_nobody() -> None:
    stage = without_two()
    stage.wait(5000)
    assert (stage.status.phase, stage.status.attempt) == ("Running", 2)


def test_ranks_get_time_to_save_when_nobody_is_lost() -> None:
    stage = without_one()
    stage.call_in("worker-1")
    orders = stage.orders[stage.replica("worker-0").uid]
    assert (orders.verb, orders.attempt, orders.grace_seconds) == (Verb.RUN, 3, 20.0)
    stage.obey()
    stage.rank_dies("worker-0", a_death(attempt=3))
    orders = stage.orders[stage.replica("worker-1").uid]
    assert (orders.attempt, orders.grace_seconds) == (4, 0.5), "a loss does not wait for anybody to save"


def test_ranks_get_as_long_as_their_saves_take() -> None:
    stage = without_one()
    saved = messages.CheckpointRecord(step=1, time=0.0, sha256="0" * 64, seconds=100.0)
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=saved))
    stage.call_in("worker-1")
    orders = stage.orders[stage.replica("worker-0").uid]
    assert (orders.attempt, orders.grace_seconds) == (3, 300.0)


def test_who_is_back_while_the_others_start_takes_part_as_soon_as_they_run() -> None:
    stage = without_one()
    stage.rank_dies("worker-0", a_death(attempt=2))
    stage.call_in("worker-1")
    assert "worker-1" in stage.status.absent, "nobody's start is interrupted"
    stage.obey("worker-0", "worker-2")
    assert "worker-1" not in stage.status.absent
    assert stage.status.attempt == 4


def test_who_is_missed_and_ends_again_gets_another_pod() -> None:
    stage = without_one()
    before = stage.replica("worker-1").incarnation
    stage.change("worker-1", evicted)
    assert stage.replica("worker-1").incarnation == before + 1
    assert (stage.status.attempt, stage.status.phase) == (2, "Running")


def test_the_job_succeeds_with_those_that_train() -> None:
    stage = without_one()
    stage.finish("worker-0", "worker-2")
    assert stage.status.phase == "Succeeded"


@pytest.mark.parametrize("kind", ["Gossip", "ParameterServer"])
def test_members_that_come_and_go_begin_without_the_late_who_join_later(kind: str) -> None:
    job = a_job().where(strategy={"type": kind}, training=SCRIPT, elasticity=BOUNDS).with_workers(3)
    stage = Members(job)
    stage.settle().call_in("worker-0", "worker-1", "parameterServer-0")
    stage.offer().wait(61)
    stage.follow()
    assert (stage.status.phase, "worker-2" in stage.status.starts) == ("Running", False)
    stage.call_in()
    stage.offer().follow()
    assert (stage.status.attempt, stage.status.starts["worker-2"]) == (1, 0)
    stage.change("worker-2", silent)
    assert stage.line("worker-2"), "silence ends nobody's training"
    assert stage.orders_of("worker-2").verb == Verb.RUN
    stage.finish("worker-0", "worker-1")
    assert not stage.status.finished
    stage.finish("worker-2")
    assert stage.status.phase == "Succeeded"


def test_a_suspension_is_no_waiting_for_workers() -> None:
    stage = an_elastic_group(3).respec(suspend=True).wait(3600)
    stage.respec(suspend=False).call_in("worker-0", "worker-2")
    assert stage.wait(59).status.absent == ()
    assert stage.wait(2).status.absent == ("worker-1",)


def without_the_first_two(workers: int, **bounds: int) -> Stage:
    """A group that has gone on without worker-0 and worker-1, whose next pods find no place."""
    stage = a_stage(workers, elasticity={"maxReplicas": 4, **bounds}).train()
    for key in ("worker-0", "worker-1"):
        stage.change(key, evicted)
    stage.wait(61)
    return stage.obey(*(f"worker-{index}" for index in range(2, workers)))


@pytest.mark.parametrize("workers", [1, 2])
def test_scaled_down_to_those_who_are_missed_it_waits_for_them(workers: int) -> None:
    stage = without_the_first_two(3, minReplicas=1).scale(workers)
    assert (stage.status.phase, stage.status.absent) == ("Resizing", ())
    assert {replica.index for replica in stage.replicas.values() if replica.alive} == set(range(workers))
    stage.call_in().obey()
    assert (stage.status.phase, stage.status.absent) == ("Running", ())


def test_scaled_down_it_does_not_begin_with_fewer_than_the_least() -> None:
    stage = without_the_first_two(4, minReplicas=2).scale(3)
    assert (stage.status.phase, stage.status.absent) == ("Resizing", ())
    stage.obey("worker-2")
    assert stage.status.phase == "Resizing"
    stage.call_in("worker-0").wait(61)
    stage.obey("worker-0", "worker-2")
    assert (stage.status.phase, stage.status.absent) == ("Running", ("worker-1",))


def test_scaled_down_while_it_gathers_it_does_not_begin_with_fewer_than_the_least() -> None:
    stage = without_the_first_two(4, minReplicas=2)
    stage.rank_dies("worker-2", a_death(attempt=2))
    stage.change("worker-3", evicted)
    assert stage.status.phase == "Restarting"
    stage.scale(3)
    assert (stage.status.phase, stage.status.absent) == ("Restarting", ())


def test_scaled_down_it_goes_on_at_once_without_who_is_still_missed() -> None:
    stage = without_the_first_two(4, minReplicas=1).scale(3).obey("worker-2")
    assert (stage.status.phase, stage.status.absent) == ("Running", ("worker-0", "worker-1"))


def test_whoever_is_written_to_be_missed_somebody_trains() -> None:
    job = a_job().with_workers(2).where(elasticity={"minReplicas": 1, "maxReplicas": 2})
    stage = Stage(job.at("Running", absent=["worker-0", "worker-1", "worker-1", "x"])).train()
    assert stage.status.phase == "Running"
