"""Find, from its end, how far metrics.jsonl is good.

A training of weeks has millions of lines, and a restart must not read them all: those up to a checkpoint were on the
disk before it was. What came after may be torn, or zeros where a node lost its power.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainmaster.wire.files import open_to_read
from trainmaster.wire.metric_lines import METRICS, MOST_BYTES, parse, step_of, whole

_MOST_LOSSES = 20_000  # that are remembered of lines that are cut off
_BLOCK = 1 << 16  # bytes read from the end at first; four times as many each further time, up to:
_LARGEST_BLOCK = 1 << 22
_MOST_BACK = 1 << 30  # bytes looked through from the end; then from the beginning
# As `metrics` writes them. A restart waits while lines are looked through, and a whole parse of each takes ten times.
_BEGINNING = re.compile(rb'\{"step": (\d{1,18}), "loss": ')

__all__ = ["METRICS"]


class MetricsEnd(NamedTuple):
    """MetricsEnd says how many bytes are good, and that the last line of them is of `step`; 0 if there is none."""

    bytes: int = 0
    step: int = 0


def end_of_lines(folder: Path, step: int, trusted: int = 0, evaluated: int | None = None) -> MetricsEnd:
    """Return where the lines of steps up to `step` end. A torn line, and all that comes after it, does not count.

    Nor does a line of a step that is not later than the one before, and all after it: two attempts have written there.

    `evaluated`: lines of evaluations count up to this step; None: up to `step`. `trusted`: lines up to this step are
    known to be whole; only what comes after the last of them is looked at.
    """
    try:
        descriptor = open_to_read(folder / METRICS)
    except FileNotFoundError:
        return MetricsEnd()
    try:
        return _end(descriptor, step, min(trusted, step), step if evaluated is None else evaluated)
    finally:
        os.close(descriptor)


def text_up_to(folder: Path, step: int, trusted: int = 0) -> bytes:
    """Return the lines of steps up to `step`."""
    end = end_of_lines(folder, step, trusted)
    if not end.bytes:
        return b""
    descriptor = open_to_read(folder / METRICS)
    try:
        return _read(descriptor, 0, end.bytes)
    finally:
        os.close(descriptor)


def losses_after(folder: Path, end: MetricsEnd) -> dict[int, float | None]:
    """Return the losses of a limited number of lines after `end`; None for a loss that is not a number."""
    found: dict[int, float | None] = {}
    descriptor = open_to_read(folder / METRICS)
    try:
        for text in itertools.islice(_lines(descriptor, end.bytes), _MOST_LOSSES):
            with suppress(ValueError):  # it is torn
                line = parse(text, attempt=0)
                found |= {line.step: line.loss} if line.is_of_a_step else {}
    finally:
        os.close(descriptor)
    return found


def _end(descriptor: int, step: int, trusted: int, evaluated: int) -> MetricsEnd:
    end = _last_trusted(descriptor, trusted)
    told = 0  # the step of the last evaluation
    for line in _lines(descriptor, end.bytes):
        found = whole(line)
        if found is None:
            break
        if not found.is_of_a_step and told < found.step == end.step <= evaluated:
            told = found.step
        elif not (found.is_of_a_step and end.step < found.step <= step):
            break
        end = MetricsEnd(end.bytes + len(line), found.step)
    return end


def _last_trusted(descriptor: int, trusted: int) -> MetricsEnd:
    """Return where the last line of a step up to `trusted` ends, searched a limited way from the end of the file."""
    size = os.fstat(descriptor).st_size
    position, length, rest = size, _BLOCK, b""
    while position > max(0, size - _MOST_BACK):
        first = max(0, position - length)
        lines = (_read(descriptor, first, position) + rest).splitlines(keepends=True)
        for number in range(len(lines) - 1, 0 if first else -1, -1):  # the first one may be half a line
            found = _BEGINNING.match(lines[number])
            step = step_of(lines[number]) if found is not None and int(found[1]) <= trusted else None
            if step is not None and step <= trusted:
                return MetricsEnd(first + sum(map(len, lines[: number + 1])), step)
        rest = lines[0] if lines and len(lines[0]) <= MOST_BYTES else b""  # what is longer is no line of ours
        position, length = first, min(4 * length, _LARGEST_BLOCK)
    return MetricsEnd()


def _lines(descriptor: int, position: int) -> Iterator[bytes]:
    """Yield the lines from there on; the last one may be torn. A line that is too long to be ours ends them."""
    rest = b""
    while block := os.pread(descriptor, _LARGEST_BLOCK, position):
        position += len(block)
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
        if len(rest) > MOST_BYTES:
            return
    yield rest


def _read(descriptor: int, first: int, end: int) -> bytes:
    pieces = []
    while first < end and (piece := os.pread(descriptor, end - first, first)):
        pieces.append(piece)
        first += len(piece)
    return b"".join(pieces)
