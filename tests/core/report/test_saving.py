"""A save that fails is said once, with the newest good checkpoint and a cure; the next good save takes it back."""

import dataclasses

import pytest
from trainmaster.api.status import Condition
from trainmaster.core.report.story import story
from trainmaster.wire.messages import CheckpointRecord, UnsavedCheckpoint

from tests.builders import a_death
from tests.core.stage import Stage, a_running_group

FULL = "rank 0: [Errno 28] No space left on device"


def saving(stage: Stage, saved: int, unsaved: int | None = None, problem: str = FULL) -> Stage:
    """Worker 0 tells of its newest checkpoint, and of a save that failed; the operator looks a while later."""
    beat = stage.replica("worker-0").heartbeat
    assert beat
    (rank,) = beat.ranks
    said = UnsavedCheckpoint(unsaved, problem) if unsaved is not None else None
    record = CheckpointRecord(saved, 0.0, "abc") if saved else None
    changed = dataclasses.replace(beat, checkpoint=record, ranks=(dataclasses.replace(rank, unsaved=said),))
    return stage.say("worker-0", lambda _: changed).wait(20)


def condition(stage: Stage) -> Condition | None:
    """As it stands written."""
    return stage.condition("CheckpointSaving")


def told(stage: Stage) -> tuple[str, str]:
    """Whether it holds, and the reason."""
    return stage.told("CheckpointSaving")


def test_it_is_said_with_the_newest_good_one_and_a_cure() -> None:
    stage = saving(a_running_group(), saved=100, unsaved=200)
    found = condition(stage)
    assert found
    assert (found.status, found.reason) == ("False", "OutOfStorage")
    assert found.message == (
        "The checkpoint of step 200 could not be written, the newest good one is that of step 100: rank 0: [Errno 28] "
        "No space left on device. Training goes on, and each save is tried. Make room: a larger volume or "
        "ephemeral-storage limit, a smaller spec.checkpoint.keep."
    )
    assert stage.status.phase == "Running"
    assert found.message in "\n".join(story(stage.status))


def test_one_event_and_one_write_however_many_saves_fail() -> None:
    stage = saving(a_running_group(), saved=100, unsaved=200)
    writes = len(stage.writes)
    for step in (300, 400, 500):
        saving(stage, saved=100, unsaved=step)
    assert [event.reason for event in stage.events].count("CheckpointNotSaved") == 1
    assert len(stage.writes) == writes, "nothing that people must know has changed"


def test_the_next_good_save_takes_it_back() -> None:
    stage = saving(a_running_group(), saved=100, unsaved=200)
    assert told(saving(stage, saved=300)) == ("True", "Saved")
    assert told(saving(stage, saved=400)) == ("True", "Saved")
    assert told(saving(stage, saved=400, unsaved=500)) == ("False", "OutOfStorage")
    assert [event.reason for event in stage.events].count("CheckpointNotSaved") == 2


def test_a_restart_alone_does_not_take_it_back() -> None:
    stage = saving(a_running_group(), saved=100, unsaved=200)
    stage.rank_dies("worker-1", a_death(step=250)).wait(5).obey(step=251).wait(20)
    assert stage.status.phase == "Running"
    assert told(stage) == ("False", "OutOfStorage")
    assert told(saving(stage, saved=300)) == ("True", "Saved")


def test_who_never_saved_is_told_so() -> None:
    found = condition(saving(a_running_group(), saved=0, unsaved=100))
    assert found
    assert "there is no good one yet" in found.message


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("rank 1: [Errno 122] Disk quota exceeded", "OutOfStorage"),
        ("rank 0: [Errno 5] Input/output error", "Infrastructure"),
        ("ValueError: what is this", "SaveFailed"),
        ("\ud800" * 5000, "SaveFailed"),
    ],
)
def test_other_troubles_have_their_names(problem: str, reason: str) -> None:
    assert told(saving(a_running_group(), saved=100, unsaved=200, problem=problem)) == ("False", reason)


def test_a_job_whose_saves_are_good_says_nothing() -> None:
    assert condition(saving(a_running_group(), saved=100)) is None
