"""Trackers that are away are one condition, which names all of them, and is taken back."""

import dataclasses

from trainmaster.api.status import Condition

from tests.core.stage import Stage, a_running_group


def saying(stage: Stage, **problems: str) -> Condition | None:
    """Worker 0 tells what is wrong with its trackers; the operator looks a while later."""
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, trackers=problems)).wait(20)
    return stage.condition("TrackersReached")


def test_a_job_whose_trackers_were_never_away_has_no_condition() -> None:
    assert saying(a_running_group()) is None


def test_all_that_is_wrong_is_said_and_taken_back() -> None:
    stage = a_running_group()
    found = saying(stage, MLflow="connection refused")
    assert found
    assert (found.status, found.reason) == ("False", "TrackerUnreachable")
    assert found.message == ("MLflow: connection refused. Training goes on; metrics.jsonl keeps what is to be told.")
    found = saying(stage, MLflow="connection refused", OpenTelemetry="503")
    assert found
    assert "OpenTelemetry: 503." in found.message
    found = saying(stage)
    assert found
    assert (found.status, found.message) == ("True", "The trackers have all lines again.")
    assert stage.status.phase == "Running"


def test_nothing_is_written_while_nothing_changes() -> None:
    stage = a_running_group()
    saying(stage, MLflow="connection refused")
    writes = len(stage.writes)
    for _ in range(5):
        saying(stage, MLflow="connection refused")
    assert len(stage.writes) <= writes + 10
