"""Ranks that die while they load: they have no step of their own yet, and stand where they would have gone on from."""

import dataclasses

import pytest
from trainmaster.wire.messages import CheckpointRecord

from tests.builders import TASK, a_death, an_error
from tests.core.stage import Stage, a_running_group


def a_long_job(**policy: int) -> Stage:
    """A group that trains for a long time."""
    return a_running_group(workers=2, training={**TASK, "steps": 100_000}, failurePolicy=policy)


def trained(stage: Stage, step: int) -> Stage:
    """The group came so far, and saved it."""
    record = CheckpointRecord(step, 0.0, "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    return stage.wait(1900).obey(step=step)


def dies_loading(stage: Stage, message: str = "the index cannot be read") -> Stage:
    """Worker 1 does."""
    return stage.rank_dies("worker-1", an_error(message, stage.status.attempt, step=0))


def test_it_stands_at_the_checkpoint() -> None:
    stage = dies_loading(trained(a_long_job(), 1000))
    (line,) = stage.status.restarts
    assert (line.step, line.steps_lost, line.why) == (1000, 0, "Restarting from step 1000 or a newer one in memory.")


def test_before_the_first_checkpoint_it_stands_at_the_beginning() -> None:
    assert dies_loading(a_long_job()).status.restarts[-1].step == 0


def test_what_training_has_refilled_stays_refilled() -> None:
    stage = a_long_job(maxRestarts=3)
    for step in (100, 1000, 10_000):
        trained(stage, step).rank_dies("worker-1", a_death(stage.status.attempt, step=step))
    assert dies_loading(trained(stage, 50_000)).status.phase == "Starting"


@pytest.mark.parametrize(("further", "phase"), [(1000, "Starting"), (0, "Failed")])
def test_the_same_error_again_is_a_bug_unless_training_went_on_between(further: int, phase: str) -> None:
    stage = dies_loading(trained(a_long_job(), 1000))
    assert dies_loading(trained(stage, 1000 + further)).status.phase == phase
