"""A script is in phase Running as soon as its processes are: what it takes until its first step is no training."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from trainmaster.api.status import Goodput
from trainmaster.wire import messages

from tests.builders import a_death
from tests.core.stage import Stage, a_stage

KEYS = ("worker-0", "worker-1")


def a_script() -> Stage:
    return begun(a_stage(workers=2, training={"command": ["python", "train.py"]}).settle().call_in())


def begun(stage: Stage) -> Stage:
    """The ranks run and have told no step yet."""
    for key in KEYS:
        stage.obey(key, step=0, phase="load").say(key, lambda beat: dataclasses.replace(beat, ranks=()))
    return stage


def telling(stage: Stage, step: int, *starts: float | None) -> Stage:
    """Each rank tells this step and how long its start took."""
    for rank, (key, seconds) in enumerate(zip(KEYS, starts, strict=True)):
        _says(stage, key, messages.RankProgress(rank, step, resumed_step=0, start_seconds=seconds))
    return stage


def _says(stage: Stage, key: str, told: messages.RankProgress) -> Stage:
    return stage.say(key, lambda beat: dataclasses.replace(beat, ranks=(told,)))


def spent(stage: Stage) -> Goodput:
    assert stage.status.goodput
    return stage.status.goodput


def test_what_is_before_the_first_step_is_no_training_once_a_script_says_when_that_began() -> None:
    stage = telling(a_script().wait(40), 1, None, None)
    assert (spent(stage).starting, spent(stage).training) == (0, 40), "nobody has said anything yet"
    telling(stage.wait(10), 20, 30.0, 35.0)
    assert (spent(stage).starting, spent(stage).training) == (30, 20), "the one that was started last"
    stage.wait(60).finish()
    assert (spent(stage).starting, spent(stage).training, spent(stage).total) == (30, 80, 110), "once"


def test_a_script_that_never_says_it_trains() -> None:
    stage = telling(a_script().wait(40), 1, None, None).wait(60).finish()
    assert (spent(stage).starting, spent(stage).training) == (0, 100)


def test_a_script_that_is_through_at_once_has_told_it_with_its_last_word() -> None:
    stage = a_script()
    stage.now += timedelta(seconds=40)
    telling(stage, 9, 30.0, 30.0).finish()
    assert (spent(stage).starting, spent(stage).training) == (30, 10)


def test_after_a_failure_it_is_part_of_the_recovery_also_where_no_step_had_been_told() -> None:
    stage = a_script().wait(40).rank_dies("worker-1", a_death(step=0)).wait(2)
    telling(begun(stage).wait(40), 9, 30.0, 30.0).wait(20).finish()
    assert (spent(stage).training, spent(stage).recovering, spent(stage).starting) == (40 + 30, 2 + 30, 0)


def test_what_was_recovering_until_the_first_step_is_not_booked_twice() -> None:
    stage = telling(a_script().wait(10), 100, 2.0, 2.0).wait(100)
    stage.rank_dies("worker-1", a_death(step=100)).wait(2)
    telling(begun(stage).wait(30), 101, None, None).wait(10)
    telling(stage, 110, 29.5, 29.5).wait(30)
    telling(stage, 120, 30.5, 30.5).wait(10).finish()
    assert (spent(stage).starting, spent(stage).recovering, spent(stage).lost_work) == (2, 2 + 30.5, 108)
    assert spent(stage).training == 49.5


def test_what_was_starting_when_an_operator_saw_late_that_ranks_run_is_not_booked_twice() -> None:
    stage = a_stage(workers=2, training={"command": ["python", "train.py"]}).settle().call_in()
    stage.obey("worker-0", step=9)
    _says(stage, "worker-0", messages.RankProgress(0, 9, resumed_step=0, start_seconds=30.0)).wait(40)
    telling(stage.obey("worker-1", step=9), 9, 30.0, 30.0).wait(60).finish()
    assert (spent(stage).starting, spent(stage).training) == (40, 60)


def test_each_attempt_starts_for_itself() -> None:
    stage = telling(a_script().wait(40), 9, 30.0, 30.0).wait(10)
    stage.respec(suspend=True).wait(100).respec(suspend=False).call_in()
    telling(begun(stage).wait(20), 9, 15.0, 15.0).wait(10).finish()
    assert (spent(stage).waiting, spent(stage).starting, spent(stage).training) == (100, 45, 35)


@pytest.mark.parametrize("told", [-5.0, 1e300, float("inf"), float("nan")])
def test_it_is_bounded_by_the_time_that_there_was(told: float) -> None:
    stage = telling(a_script().wait(40), 9, told, told).wait(10).finish()
    assert spent(stage).total == 50
    assert 0 <= spent(stage).starting <= 50
