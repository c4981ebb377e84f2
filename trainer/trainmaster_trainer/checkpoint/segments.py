"""Store the lines of metrics.jsonl in an object store in segments, so that a checkpoint puts only what is new.

    <url>/lines/00000041-00000050.1f6f0c2a.attempt-2-restart-1.jsonl    the lines of these steps
    <url>/step-00000050.attempt-2-restart-1/lines.json                  the segments that make the lines up to this step

A segment counts where a committed checkpoint names it: what a kill left, or an attempt that was given up, does no harm.
Small ones are put again as one, so there are few, and a line is put as often as its segment doubles.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from trainmaster.wire import bounded_json
from trainmaster.wire.files import open_to_read

from trainmaster_trainer.checkpoint.layout import sync_folder
from trainmaster_trainer.checkpoint.remote import SEGMENTS, Remote
from trainmaster_trainer.lines import METRICS, end_of_lines

log = logging.getLogger(__name__)
INDEX = "lines.json"
_LARGEST = 1 << 24  # bytes of a segment that others were joined into
_MOST_INDEX = 1 << 20  # bytes
_MOST_BYTES = 1 << 34  # of all lines: a hundred million
_NAME = re.compile(r"[0-9]{8,15}-[0-9]{8,15}\.[0-9a-f]{8}\.[a-z0-9-]{1,100}\.jsonl")


class LineSegment(NamedTuple):
    """A segment is an object of lines."""

    first: int  # step
    name: str
    bytes: int


@dataclass(frozen=True)
class Lines:
    """Hold the lines up to a checkpoint."""

    step: int = 0
    segments: tuple[LineSegment, ...] = ()
    last: str = ""  # the last line, with its time: who has it at the same place has the same lines

    @property
    def bytes(self) -> int:
        """Return their number of bytes."""
        return sum(segment.bytes for segment in self.segments)

    def held_by(self, folder: Path, lacking: int = 0) -> bool:
        """Return whether the metrics file there begins with these lines, without the first `lacking` bytes."""
        last = self.last.encode()
        position = self.bytes - lacking - len(last)
        return position >= 0 and _cut(folder, position, position + len(last)) == last


def read(remote: Remote, name: str) -> Lines:
    """Return the lines up to a committed checkpoint; none where its index cannot be read."""
    try:
        return _parse(remote.get(f"{name}/{INDEX}", _MOST_INDEX) or b"")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Lines()
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return Lines()


def _parse(text: bytes) -> Lines:
    """Return what an index says.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is none.
    """
    plain = bounded_json.parse(text, _MOST_INDEX, _MOST_INDEX)
    segments = tuple(LineSegment(*one) for one in plain["segments"])
    step, last = plain["step"], plain["last"]
    numbers = [step, *(number for one in segments for number in (one.first, one.bytes))]
    if not all(type(number) is int and number >= 0 for number in numbers) or type(last) is not str:
        raise ValueError("a number that cannot be")
    names = {one.name for one in segments if _NAME.fullmatch(one.name)}
    if len(names) < len(segments) or sum(one.bytes for one in segments) > _MOST_BYTES:
        raise ValueError("a name that cannot be, or more bytes than lines have")
    return Lines(step, segments, last)


def bring(remote: Remote, name: str, folder: Path, target: Path) -> None:
    """Write the lines up to a committed checkpoint into a file, unless the metrics file in `folder` has them."""
    lines = read(remote, name)
    if not lines.segments or lines.held_by(folder):
        return
    target.unlink(missing_ok=True)
    with target.open("xb") as file:
        position = 0
        for segment in lines.segments:
            if remote.copy(f"{SEGMENTS}/{segment.name}", file.fileno(), position, segment.bytes):
                position += segment.bytes
            else:
                log.warning("Lines of %s are lost: the object %s/%s is not good.", METRICS, SEGMENTS, segment.name)
        file.truncate(position)
        os.fsync(file.fileno())


def take(source: Path, folder: Path) -> None:
    """Make what `bring` wrote, if it did, the metrics file of a folder."""
    if source.exists():
        source.replace(folder / METRICS)
        sync_folder(folder)


class SegmentWriter:
    """SegmentWriter puts the lines of one attempt."""

    def __init__(self, remote: Remote, folder: Path, run_key: str) -> None:
        self._remote = remote
        self._folder = folder
        self._suffix = f"{secrets.token_hex(4)}.{run_key}.jsonl"  # another process may write for the same attempt
        self.put_here: set[str] = set()  # names
        self._lacking = 0  # bytes from the beginning that the file here does not have
        self._fixed = 0  # bytes from the beginning that are not put again

    def put(self, name: str, step: int, base: Lines) -> Lines:
        """Put the lines up to `step`, those of `base` being there, and name them in the checkpoint `name`."""
        if not base.held_by(self._folder, self._lacking):  # a new pod may have been unable to fetch older lines
            self._lacking = base.bytes - end_of_lines(self._folder, base.step, trusted=base.step).bytes
            self._fixed = base.bytes
        lines = self._extended(base, step)
        self._remote.put(f"{name}/{INDEX}", json.dumps(asdict(lines)).encode())
        return lines

    def _extended(self, base: Lines, step: int) -> Lines:
        end = end_of_lines(self._folder, step, trusted=step).bytes + self._lacking
        begin, first = base.bytes, base.step + 1
        if end <= begin:
            return base
        older = list(base.segments)
        while older and begin - older[-1].bytes >= self._fixed:
            last, new = older[-1], end - begin
            if last.bytes >= 2 * new or last.bytes + new > _LARGEST:
                break
            begin, first = begin - last.bytes, last.first
            older.pop()
        text = _cut(self._folder, begin - self._lacking, end - self._lacking)
        segment = LineSegment(first, f"{first:08d}-{step:08d}.{self._suffix}", len(text))
        self.put_here.add(segment.name)
        self._remote.put(f"{SEGMENTS}/{segment.name}", text)
        return Lines(step, (*older, segment), text[text.rfind(b"\n", 0, -1) + 1 :].decode())


def _cut(folder: Path, begin: int, end: int) -> bytes:
    try:
        with os.fdopen(open_to_read(folder / METRICS), "rb") as file:
            file.seek(begin)
            return file.read(end - begin)
    except FileNotFoundError:
        return b""
