"""Read the curves of a training, from metrics.jsonl or from `.status.history`, in bounded time and memory.

A metrics file may have millions of lines, and its last one, or any, may be torn. A curve keeps at most MOST_POINTS
means, each over equally many steps.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.api.status import TrainingJobStatus
from trainmaster.wire import bounded_json
from trainmaster.wire.files import open_to_read
from trainmaster.wire.metric_lines import MOST_BYTES

MOST_POINTS = 1024
_MOST_CURVES = 64
_BYTES_PARSED = 40 << 20  # of the lines of steps in a larger file every second, third, ... one is looked at
_MOST_VALUES = 10_000
_LARGEST = 1e300  # the sum of many is finite
SAMPLES = "samples/s"


@dataclass
class Curve:
    """A curve takes points in the order in which they were trained, and keeps few enough to draw."""

    last: tuple[int, float] = (0, 0.0)
    low: tuple[int, float] | None = None
    high: tuple[int, float] | None = None
    _stride: int = 1
    _means: list[tuple[int, int, float, int]] = field(default_factory=list)  # slot, last step, sum, number of values

    def add(self, step: int, value: float) -> None:
        """Add a point. A step that is trained again replaces what was told of it and of later ones."""
        slot = step // self._stride
        while self._means and (self._means[-1][0] > slot or self._means[-1][1] >= step):
            self._means.pop()
        total, count = value, 1
        if self._means and self._means[-1][0] == slot:
            _, _, before, number = self._means.pop()
            total, count = before + value, number + 1
        self._means.append((slot, step, total, count))
        self.last = (step, value)
        self.low = (step, value) if self.low is None or value < self.low[1] else self.low
        self.high = (step, value) if self.high is None or value > self.high[1] else self.high
        while len(self._means) > MOST_POINTS:
            self._halve()

    def _halve(self) -> None:
        self._stride *= 2
        merged: list[tuple[int, int, float, int]] = []
        for slot, step, total, count in self._means:
            if merged and merged[-1][0] == slot // 2:
                _, _, before, number = merged.pop()
                total, count = before + total, number + count  # noqa: PLW2901 the sum of both
            merged.append((slot // 2, step, total, count))
        self._means = merged

    @property
    def points(self) -> list[tuple[int, float]]:
        """Return step and mean of each part, in the order of steps."""
        return [(step, total / count) for _, step, total, count in self._means]


@dataclass
class Curves:
    """The curves of one training by the names of their figures, the loss first."""

    by_name: dict[str, Curve] = field(default_factory=dict)
    torn: int = 0  # lines that cannot be read

    def add(self, name: str, step: int, value: Any) -> None:
        """Add a point of a figure; what is no number is left out."""
        if type(value) not in (int, float) or abs(value) > _LARGEST:
            return
        if name not in self.by_name and len(self.by_name) >= _MOST_CURVES:
            return
        self.by_name.setdefault(name, Curve()).add(step, float(value))

    def line(self, text: bytes) -> None:
        """Add the points of a line of metrics.jsonl."""
        try:
            plain = bounded_json.parse(text, _MOST_VALUES, _MOST_VALUES)
        except ValueError:
            plain = None
        step = plain.get("step") if isinstance(plain, dict) else None
        if type(step) is not int or step < 0:
            self.torn += 1
            return
        self.add("loss", step, plain.get("loss"))
        for name, value in _members(plain.get("metrics")):
            self.add(name, step, value)
        for name, value in _members(plain.get("evaluation")):
            self.add(f"eval {name}", step, value)
        self.add(SAMPLES, step, plain.get("samples_per_second"))


def _members(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def of_file(path: Path) -> Curves:
    """Return the curves in a metrics file.

    Raises:
        OSError: it cannot be read.
    """
    curves = Curves()
    with os.fdopen(open_to_read(path), "rb") as file:
        every = os.fstat(file.fileno()).st_size // _BYTES_PARSED + 1
        for number, line in enumerate(_lines(file)):
            if number % every == 0 or b'"evaluation"' in line:
                curves.line(line)
    return curves


def _lines(file: Any) -> Iterator[bytes]:
    """Yield lines that are whole, and of what is too long for one its pieces, which are none."""
    while line := file.readline(MOST_BYTES):
        if line.endswith(b"\n") or len(line) == MOST_BYTES:
            yield line


def of_status(status: TrainingJobStatus) -> Curves:
    """Return the curves that a status keeps."""
    curves = Curves()
    for point in status.history:
        curves.add("loss", point.step, point.loss)
    for evaluation in status.evaluations:
        for name, value in evaluation.figures.items():
            curves.add(f"eval {name}", evaluation.step, value)
    for point in status.history:
        curves.add(SAMPLES, point.step, point.samples_per_second)
    return curves
