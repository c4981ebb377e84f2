"""Lines: how far metrics.jsonl is good, found from its end.

A training of weeks has millions of lines, and a restart must not read them all: those up to a checkpoint were on the
disk before it was. What came after may be torn, or zeros where a node lost its power.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.wire.files import open_to_read

METRICS = "metrics.jsonl"
_BLOCK = 1 << 16  # bytes read from the end at first; four times as many each further time
# As `metrics` writes them. A restart waits while lines are looked through, and a whole parse of each takes ten times.
_BEGINNING = re.compile(rb'\{"step": (\d{1,18}), "loss": ')


class End(NamedTuple):
    """So many bytes are good, and the last line of them is that of `step`; 0 where there is none."""

    bytes: int = 0
    step: int = 0


def end_of_lines(folder: Path, step: int, trusted: int = 0) -> End:
    """Where the lines of steps up to `step` end. A torn line, and all that comes after such, does not count.

    Nor does one of a step that is not later than the one before, and all after it: two attempts have written there.

    `trusted`: lines up to this step are known to be whole; only what comes after the last of them is looked at.
    """
    try:
        descriptor = open_to_read(folder / METRICS)
    except FileNotFoundError:
        return End()
    try:
        return _end(descriptor, step, min(trusted, step))
    finally:
        os.close(descriptor)


def text_up_to(folder: Path, step: int, trusted: int = 0) -> bytes:
    """The lines of steps up to `step`."""
    end = end_of_lines(folder, step, trusted)
    if not end.bytes:
        return b""
    descriptor = open_to_read(folder / METRICS)
    try:
        return _read(descriptor, 0, end.bytes)
    finally:
        os.close(descriptor)


def _end(descriptor: int, step: int, trusted: int) -> End:
    begin, known, lines = _tail(descriptor, trusted)
    end = End(begin, known)
    for line in lines:
        found = _step_of(line)
        if found is None or not end.step < found <= step:
            break
        end = End(end.bytes + len(line), found)
    return end


def _tail(descriptor: int, trusted: int) -> tuple[int, int, Sequence[bytes]]:
    """Where the last line of a step up to `trusted` ends, its step, and the lines that follow. Else all lines."""
    size, length = os.fstat(descriptor).st_size, _BLOCK
    while True:
        first = max(0, size - length)
        lines = _read(descriptor, first, size).splitlines(keepends=True)
        for number in range(len(lines) - 1, 0 if first else -1, -1):  # the first one may be half a line
            step = _step_of(lines[number]) if _may_be(lines[number], trusted) else None
            if step is not None and step <= trusted:
                return first + sum(map(len, lines[: number + 1])), step, lines[number + 1 :]
        if not first:
            return 0, 0, lines
        length *= 4


def _may_be(line: bytes, trusted: int) -> bool:
    """Whether this looks like the line of a step up to `trusted`."""
    found = _BEGINNING.match(line)
    return found is not None and int(found[1]) <= trusted


def _read(descriptor: int, first: int, end: int) -> bytes:
    pieces = []
    while first < end and (piece := os.pread(descriptor, end - first, first)):
        pieces.append(piece)
        first += len(piece)
    return b"".join(pieces)


def _step_of(line: bytes) -> int | None:
    """Of which step a whole line tells the loss."""
    try:
        values: dict[str, Any] = json.loads(line)
        return int(values["step"]) if line.endswith(b"\n") and "loss" in values else None
    except (ValueError, KeyError, TypeError):
        return None
