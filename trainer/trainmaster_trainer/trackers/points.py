"""Define what is told of a job: its parameters, and the points that lines of metrics.jsonl are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

_FIGURES = ("loss", "samples_per_second", "step_seconds")
ATTEMPT = "attempt"
FOLDER = "trackers"  # beside metrics.jsonl, with a folder for each follower


@dataclass(frozen=True)
class TrackedJob:
    """Hold which job is told of, and to whom: what the agent gives a follower."""

    tracker: str  # as in `wire.trackers`
    options: dict[str, str]
    folder: str  # of metrics.jsonl
    job: str  # namespace/name
    uid: str
    parameters: dict[str, str] = field(default_factory=dict)
    is_script: bool = False

    @property
    def name(self) -> str:
        """Return the job's name, without its namespace."""
        return self.job.rpartition("/")[2]

    @property
    def home(self) -> Path:
        """Return the folder of metrics.jsonl."""
        return Path(self.folder)

    @property
    def own(self) -> Path:
        """Return the folder of this follower's own files."""
        return self.home / FOLDER / self.tracker


@dataclass(frozen=True)
class Point:
    """Hold one line: the figures after a step. A figure that is not a number is NaN."""

    step: int
    attempt: int
    time: float
    figures: Mapping[str, float]


class TrackerError(Exception):
    """TrackerError says in a whole sentence why a tracker is not told, with the cure where there is one."""


class Tracker(Protocol):
    """A tracker keeps the points of a run. Any of these calls may raise, and is then made again later."""

    def begin(self, run: str) -> str:
        """Open the run of the job, or go on with that of an earlier follower (`run`); return how it is called."""

    def cut(self, step: int) -> None:
        """Take notice that a resume has cut off what was told of later steps: they are told once more."""

    def tell(self, points: Sequence[Point]) -> None:
        """Keep the points. Those that the tracker has already are to change nothing."""

    def restarted(self, point: Point) -> None:
        """Mark that a new attempt began, with `point` as its first one."""

    def finish(self, end: str) -> None:
        """Bring everything to its place. `end`: finished, failed, or left where the job may go on later."""


def point_of(line: Mapping[str, Any], *, is_script: bool) -> Point | None:
    """Return what a line says; None for one that training does not write."""
    step, attempt, moment = line.get("step"), line.get(ATTEMPT, 1), line.get("time", 0.0)
    if type(step) is not int or type(attempt) is not int or type(moment) not in (int, float):
        return None
    figures = {name: _number(line[name]) for name in _FIGURES if name in line}
    if is_script and line.get("loss") is None:  # it has told none: of its NaN the file does not know
        figures.pop("loss", None)
    figures.update(_named(line.get("metrics"), ""))
    figures.update(_named(line.get("evaluation"), "evaluation/"))
    return Point(step, attempt, float(moment), figures)


def _named(values: Any, prefix: str) -> dict[str, float]:
    if not isinstance(values, dict):
        return {}
    return {prefix + name: _number(value) for name, value in values.items() if value is None or _is_number(value)}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else math.nan
