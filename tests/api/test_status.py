"""Status is written whole and read back whatever people did to it."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from trainmaster.api.job_states import Phase
from trainmaster.api.status import (
    MAX_RESTARTS_KEPT,
    CheckpointStatus,
    Condition,
    JobProgress,
    ReplicaStatus,
    RestartRecord,
    TrainingJobStatus,
)

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
FULL = TrainingJobStatus(
    observed_generation=2,
    phase=Phase.RUNNING,
    message="training",
    conditions=(Condition(type="Ready", status="True", reason="AllThere", last_transition_time=NOON),),
    attempt=2,
    incarnations={"worker-0": 1},
    start_time=NOON,
    running_time=NOON,
    progress=JobProgress(step=120, total_steps=500, loss=0.123456, samples_per_second=1000.0, eta="3m"),
    checkpoint=CheckpointStatus(step=100, time=NOON, sha256="ab"),
    replicas=ReplicaStatus(ready=3, desired=4, selector="trainmaster.dev/job=a"),
    restart_count=1,
    restarts=(RestartRecord(attempt=1, time=NOON, failure_class="Training", replica="worker-0", steps_lost=20),),
)


def test_round_trip() -> None:
    """The status is the only memory: it must come back as it was."""
    assert TrainingJobStatus.read(FULL.to_dict()) == FULL


def test_as_kubernetes_writes_it() -> None:
    """camelCase, RFC 3339, no nulls, and the summaries that the columns show."""
    written = FULL.to_dict()

    assert written["startTime"] == "2026-11-21T12:00:00Z"
    assert written["progress"] == {
        "step": 120, "totalSteps": 500, "loss": 0.1235, "samplesPerSecond": 1000.0, "eta": "3m", "summary": "120/500",
    }  # fmt: skip
    assert written["replicas"]["summary"] == "3/4"
    assert written["restarts"][0]["class"] == "Training"
    assert "completionTime" not in written


def test_rubbish_is_left_out() -> None:
    """The rest stays."""
    status = TrainingJobStatus.read(
        {
            "phase": "Flying",
            "attempt": 3,
            "incarnations": {"worker-0": "x", "worker-1": 2},
            "conditions": [
                {"type": "A"},
                5,
                {"type": "B", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"},
            ],
            "progress": {"step": -1, "loss": "low", "totalSteps": 5},
            "checkpoint": {"sha256": "a"},
            "unknown": {"a": 1},
        }
    )

    assert status.phase == "Pending"
    assert status.attempt == 3
    assert status.incarnations == {"worker-1": 2}
    assert [condition.type for condition in status.conditions] == ["B"]
    assert status.progress == JobProgress(step=0, total_steps=5)
    assert status.checkpoint is None


def test_anything_but_an_object_is_an_empty_status() -> None:
    """Also nothing at all."""
    rubbish: tuple[object, ...] = (None, [], "x", 5, {})

    assert [TrainingJobStatus.read(data) for data in rubbish] == [TrainingJobStatus()] * 5


def test_the_ledger_keeps_the_newest() -> None:
    """An object in etcd must stay small."""
    records = tuple(RestartRecord(attempt=number, time=NOON) for number in range(1, 81))
    kept = TrainingJobStatus(restarts=records).restarts

    assert len(kept) == MAX_RESTARTS_KEPT
    assert kept[-1].attempt == 80


def test_writes_do_not_bounce() -> None:
    """NaN and long tracebacks come from training code; a status write must not fail for them."""
    progress = JobProgress(step=1, loss=math.nan, samples_per_second=math.inf)
    record = RestartRecord(attempt=1, time=NOON, evidence="x" * 10_000)

    assert (progress.loss, progress.samples_per_second) == (None, None)
    assert record.evidence is not None
    assert len(record.evidence) == 2000


def test_times_are_seconds_in_utc() -> None:
    """Whatever zone they come in."""
    east = datetime(2026, 11, 21, 14, 0, 0, 999, tzinfo=timezone(timedelta(hours=2)))

    assert TrainingJobStatus(start_time=east).start_time == NOON
    assert TrainingJobStatus(start_time=NOON.replace(tzinfo=None)).start_time == NOON


def test_finished() -> None:
    """For ever."""
    assert TrainingJobStatus(phase=Phase.FAILED).finished
    assert not FULL.finished


RUBBISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def _ways(value: Any) -> list[tuple[Any, ...]]:
    """Every place in a nested value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, inner in pairs for way in ((key,), *((key, *rest) for rest in _ways(inner)))]


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A full status with up to four places replaced by rubbish, or taken away."""
    status: dict[str, Any] = FULL.to_dict()
    for _ in range(draw(st.integers(1, 4))):
        ways = _ways(status)
        if not ways:
            break
        *way, last = draw(st.sampled_from(ways))
        holder: Any = status
        for part in way:
            holder = holder[part]
        if draw(st.booleans()):
            holder[last] = draw(RUBBISH)
        else:
            del holder[last]
    return status


@given(mutated())
@settings(max_examples=400)
def test_any_mutated_status_parses(status: dict[str, Any]) -> None:
    """And what was read can be written and read again."""
    read = TrainingJobStatus.read(status)

    assert TrainingJobStatus.read(read.to_dict()) == read


@given(RUBBISH)
def test_any_rubbish_parses(data: Any) -> None:
    """Never an exception."""
    assert TrainingJobStatus.read(data) is not None


def test_what_is_written_must_be_valid_although_what_is_read_need_not() -> None:
    """A rule that writes a phase that does not exist fails where it does so; it is not taken for Pending later."""
    with pytest.raises(ValidationError, match="Input should be 'Pending'"):
        dataclasses.replace(TrainingJobStatus(), phase="Bogus")  # type: ignore[arg-type]
    assert TrainingJobStatus.read({"phase": "Bogus", "attempt": 2}) == TrainingJobStatus(attempt=2)
