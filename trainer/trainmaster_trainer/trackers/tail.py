"""Follow lines of metrics.jsonl, which grows, and which a resume cuts off and goes on with under the same steps.

Marks say where lines ended that were told, and what the last of them was. Where the newest mark does not hold any more,
the file was cut off, and what comes after the newest one that holds is told again. Marks are thinned with their age, so
that those of millions of lines are a few hundred, and are kept on disk for the next follower.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainmaster.wire import bounded_json
from trainmaster.wire.files import NOT_WRITTEN_BY_US, open_to_read, read_bounded, replace
from trainmaster.wire.metric_lines import METRICS, MOST_BYTES

from trainmaster_trainer.trackers.points import Point, TrackedJob, point_of

MOST_AT_ONCE = 1000
_BLOCK = 1 << 20
_MOST_MARKS = 400
_MOST_VALUES = 10_000  # of a line
_STATE_BYTES = 1 << 20


@dataclass(frozen=True)
class Mark:
    """Hold where a line lies, and enough of it to know it again."""

    begins: int
    ends: int
    step: int
    digest: str


@dataclass(frozen=True)
class News:
    """Hold what has come since the last look. `cut_after`: steps after this one were cut off before; None: none."""

    points: list[Point]
    cut_after: int | None = None
    marks: tuple[Mark, ...] = ()  # once the points are told

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to tell."""
        return not self.points and self.cut_after is None


class Tail:
    """Tail knows how far the file was told. A point counts as told once `told` was called with its news."""

    def __init__(self, subject: TrackedJob) -> None:
        self._paths = (subject.home / METRICS, subject.own / METRICS)
        self._is_script = subject.is_script
        self.marks: tuple[Mark, ...] = ()

    def news(self) -> News:
        """Return the next points that are not told yet, at most so many at once.

        Raises:
            OSError: the file cannot be read at the moment.
        """
        for path in self._paths:
            try:
                descriptor = open_to_read(path)
            except OSError as error:
                if error.errno in NOT_WRITTEN_BY_US:  # not there yet, or none of ours
                    continue
                raise
            try:
                return self._read(descriptor)
            finally:
                os.close(descriptor)
        return News([], None, self.marks)

    def note_told(self, news: News) -> None:
        """Take notice that all of the news is told."""
        self.marks = news.marks

    def _read(self, descriptor: int) -> News:
        good = [*self.marks]
        while good and not _holds(good[-1], descriptor):
            good.pop()
        position, last = (good[-1].ends, good[-1].step) if good else (0, 0)
        cut_after = last if len(good) < len(self.marks) else None
        points: list[Point] = []
        for line in _lines(descriptor, position):
            point = self._parsed(line)
            position += len(line)
            if point is not None:
                points.append(point)
                good.append(Mark(position - len(line), position, point.step, _digest(line)))
        # Of the older half every second mark is dropped, again and again.
        marks = good
        while len(marks) > _MOST_MARKS:
            half = len(marks) // 2
            marks = marks[:half:2] + marks[half:]
        return News(points, cut_after, tuple(marks))

    def _parsed(self, line: bytes) -> Point | None:
        try:
            plain = bounded_json.parse(line, _MOST_VALUES, _MOST_VALUES)
        except ValueError:
            return None  # zeros where a node lost its power: a resume cuts it off
        return point_of(plain, is_script=self._is_script) if isinstance(plain, dict) else None


def _holds(mark: Mark, descriptor: int) -> bool:
    return _digest(os.pread(descriptor, mark.ends - mark.begins, mark.begins)) == mark.digest


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def _lines(descriptor: int, position: int) -> list[bytes]:
    """Return the whole lines from there on, or the first of them."""
    data = os.pread(descriptor, _BLOCK, position)
    while b"\n" not in data and _BLOCK <= len(data) <= MOST_BYTES:
        more = os.pread(descriptor, _BLOCK, position + len(data))
        data += more
        if not more:
            break
    lines = data.splitlines(keepends=True)
    return (lines if data.endswith(b"\n") else lines[:-1])[:MOST_AT_ONCE]


@dataclass
class FollowerState:
    """Hold what a follower leaves for the next one: the run's name with the tracker, and how far it was told."""

    uid: str = ""
    run: str = ""
    attempt: int = 0
    marks: tuple[Mark, ...] = ()

    @classmethod
    def read(cls, path: Path) -> FollowerState:
        """Return what is there; an empty state where there is none, or it is none of ours."""
        try:
            plain: Any = bounded_json.parse(read_bounded(path, _STATE_BYTES), _MOST_VALUES, _MOST_VALUES)
            marks = tuple(Mark(int(one), int(two), int(step), str(text)) for one, two, step, text in plain["marks"])
            return cls(str(plain["uid"]), str(plain["run"]), int(plain["attempt"]), marks)
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def write(self, path: Path) -> None:
        """Replace the file.

        Raises:
            OSError: it cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        marks = [[*asdict(mark).values()] for mark in self.marks]
        text = json.dumps({"uid": self.uid, "run": self.run, "attempt": self.attempt, "marks": marks})
        replace(path, text.encode())
