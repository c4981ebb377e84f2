"""Plan a sweep: which jobs there will be, from the words of the command line alone, the same at each call.

--over training.arguments.lr=0.1,0.01       these values
--over training.arguments.width=16..128     with --random: a number between them, whole if both ends are
--over training.arguments.lr=log:1e-4..1e-1 with --random: spread evenly over the powers of ten
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

MOST_JOBS = 1000
_RANGE = re.compile(r"(log:)?([-+.\deE]+)\.\.([-+.\deE]+)")
_TRIES = 20  # for each job of a random sweep that is no copy of another one


class SweepError(Exception):
    """The sweep cannot begin, or cannot go on. The text says why, and the cure; `code` is the exit code."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Axis:
    """An axis is a field, with the values that it takes or the ends between which they lie."""

    path: str
    values: tuple[str, ...] = ()
    ends: tuple[float, float] | None = None
    whole: bool = False
    logarithmic: bool = False

    def draw(self, source: random.Random) -> str:
        """Return one of its values by chance."""
        if self.ends is None:
            return source.choice(self.values)
        low, high = self.ends
        if self.logarithmic:
            return f"{math.exp(source.uniform(math.log(low), math.log(high))):.4g}"
        return str(source.randint(int(low), int(high))) if self.whole else f"{source.uniform(low, high):.4g}"


@dataclass(frozen=True)
class Trial:
    """A trial is one job of a sweep: its name, and what it changes."""

    name: str
    changes: tuple[str, ...]

    @property
    def label(self) -> str:
        """Return the changes by the last parts of their paths."""
        pairs = [change.partition("=") for change in self.changes]
        return " ".join(f"{path.rpartition('.')[2]}={value}" for path, _, value in pairs)


def axis(word: str) -> Axis:
    """Return the axis that a word of --over describes.

    Raises:
        SweepError: it describes none.
    """
    path, equals, text = word.partition("=")
    if not path or not equals or not text:
        raise SweepError(f"--over {word}: write a field and its values, as training.arguments.lr=0.1,0.01")
    found = _RANGE.fullmatch(text)
    if not found:
        values = tuple(dict.fromkeys(value for value in _parts(text) if value))
        if not values:
            raise SweepError(f"--over {word}: there is no value in it")
        return Axis(path, values)
    try:
        low, high = float(found[2]), float(found[3])
    except ValueError:
        raise SweepError(f"--over {word}: {found[2]} and {found[3]} are no two numbers") from None
    if not (math.isfinite(low) and math.isfinite(high)) or low >= high or (found[1] and low <= 0):
        need = "above 0, and the first less than the second" if found[1] else "and the first less than the second"
        raise SweepError(f"--over {word}: the ends must be numbers {need}")
    whole = not found[1] and found[2].isdecimal() and found[3].isdecimal()
    return Axis(path, (), (low, high), whole=whole, logarithmic=bool(found[1]))


def _parts(text: str) -> list[str]:
    """Return the values between commas; those within brackets belong to a value."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def trials(name: str, axes: Sequence[Axis], count: int | None, seed: int) -> list[Trial]:
    """Return all jobs of a sweep: of the grid, or `count` of them by chance.

    Raises:
        SweepError: there are none, or too many.
    """
    if not axes:
        raise SweepError("name what to try: --over training.arguments.lr=0.1,0.01")
    if len({one.path for one in axes}) < len(axes):
        raise SweepError("a field stands in --over twice; write all of its values into one")
    points = _grid(axes) if count is None else _drawn(axes, count, seed)
    width = max(len(str(len(points))), 2)
    return [
        Trial(f"{name}-{number:0{width}}", tuple(f"{one.path}={value}" for one, value in zip(axes, point, strict=True)))
        for number, point in enumerate(points, start=1)
    ]


def _grid(axes: Sequence[Axis]) -> list[tuple[str, ...]]:
    open_ended = next((one.path for one in axes if one.ends is not None), None)
    if open_ended:
        raise SweepError(f"{open_ended} has a range, of which a grid takes no part: write values, or --random N")
    size = math.prod(len(one.values) for one in axes)
    if size > MOST_JOBS:
        raise SweepError(f"the grid has {size} jobs, and {MOST_JOBS} are the most: fewer values, or --random N")
    return list(itertools.product(*(one.values for one in axes)))


def _drawn(axes: Sequence[Axis], count: int, seed: int) -> list[tuple[str, ...]]:
    if not 1 <= count <= MOST_JOBS:
        raise SweepError(f"--random {count}: 1 to {MOST_JOBS} jobs")
    source = random.Random(seed)  # noqa: S311 (nothing secret: the same seed is to give the same jobs)
    found: dict[tuple[str, ...], None] = {}
    for _ in range(count * _TRIES):
        if len(found) == count:
            break
        found[tuple(one.draw(source) for one in axes)] = None
    return list(found)


def fingerprint(plan: Sequence[Trial], job: object) -> str:
    """Return what is equal for two calls of the same sweep."""
    text = json.dumps([[trial.name, trial.changes] for trial in plan]) + json.dumps(job, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
