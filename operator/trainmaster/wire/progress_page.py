"""Share a rank's progress page: one small memory-mapped file, written at every step, read by the agent at any time.

The training side needs no system call and no lock: there are two copies, and a counter whose parity says which one is
whole. The writer fills the other one and then counts (a latched sequence, as the kernel's clock has it:
seqcount_latch_t, docs.kernel.org/locking/seqlock.html). A reader that finds the counter changed reads again. So a rank
that is stopped in mid-write, or dies there, leaves the page that it wrote before.

Before the page stands its origin: when it was made, and which attempt, and which start of its replica within it, it
belongs to. The agent writes it once, when it makes the file, so what a rank of an older attempt wrote is never taken
for that of a newer one.

After the page stands the problem of the last save, if any: another thread writes it, so it is guarded by a checksum of
its own and not by the counter. Then comes the rank's lifeline, see `agent/rank_death.py` of the trainer; last what a
task measures beside its loss, as JSON, with a checksum too.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import time
import zlib
from typing import NamedTuple, Optional, Tuple

from trainmaster.wire import codec
from trainmaster.wire.messages import CheckpointRecord, Figures

PHASES = ("load", "train", "save", "evaluate", "done")
_COUNTER = struct.Struct("<Q")
_ORIGIN = struct.Struct("<qq")  # attempt, start
_ORIGIN_AT = 16
_WRITER = struct.Struct("<q")  # the process of a script that writes
_WRITER_AT = 32
_MADE = struct.Struct("<d")  # seconds of the monotonic clock
_MADE_AT = 40
_LAYOUT = struct.Struct("<QddddIqqdddqdddqdq")
_COPIES = (64, 512)  # where they begin
SIZE = 8192
LIFELINE_AT = 3584
_PROBLEM = struct.Struct("<IIq")  # checksum of the rest, length of the text, step
_PROBLEM_AT = 1024
_LONGEST_PROBLEM = 2000  # bytes
_RECORD = struct.Struct("<Iqdd64s")  # checksum of the rest, step, time, seconds, SHA-256 in hexadecimal digits
_RECORD_AT = 3072
_FIGURES = struct.Struct("<II")  # checksum, length of the JSON text
_FIGURES_AT = 4096
_LONGEST_FIGURES = SIZE - _FIGURES_AT - _FIGURES.size
_WRAP = 1 << 64
_NOTHING = float("nan")


def is_alive(process: int) -> bool:
    """Return whether a process that has written a page is still there."""
    return os.path.exists(f"/proc/{process}")  # noqa: PTH110 quicker


class ProgressPage(NamedTuple):
    """Hold the content of the page. `updated` is seconds of the monotonic clock; floats that are not known are NaN."""

    step: int = 0
    loss: float = _NOTHING
    samples_per_second: float = _NOTHING
    step_seconds: float = _NOTHING
    updated: float = 0.0
    phase: str = "load"
    checkpoint_step: int = 0
    resumed_step: int = -1  # from which step this try went on; -1 before it is known
    busy_seconds: float = _NOTHING  # median per step that the rank itself works, without waiting for others
    save_seconds: float = 0.0  # in phase save, since this try began
    longest_seconds: float = _NOTHING  # the longest recent step, for the hang detector: old ones fade
    total_steps: int = 0  # as the training itself says; 0: it does not
    data_share: float = 0.0  # of the rank's time of late, in which it waited for its samples; 0: also if not known
    exchange_share: float = 0.0  # likewise, in which it waited for other ranks, as far as it can tell
    snapshot_share: float = 0.0  # likewise, in which it took snapshots
    tried: int = 0  # batches of the running evaluation that are begun or done; 0: it is at none, or not known
    start_seconds: float = _NOTHING  # of a script: from when its page was made until its first step of this try began
    earlier_steps: int = 0  # of a script: those that other programs of its command, or a phase of it, had taken before
    attempt: int = 0  # the attempt that the page belongs to, as its maker wrote it; `write` leaves it as it is
    start: int = 0  # of the replica's starts within the attempt, where members start alone; likewise

    def overdue_seconds(self, now: float) -> Optional[float]:
        """Return how many seconds longer the running step takes than usual; None where none runs or none ever ended."""
        if self.phase != "train" or not math.isfinite(self.step_seconds + self.updated):
            return None
        return max(0.0, now - self.updated - self.step_seconds)


class ProgressFile:
    """Map a page. The agent creates it (`create=True`) before it starts the rank, for that attempt and start alone.

    Raises:
        OSError: it cannot be opened, or there is no room for it.
    """

    def __init__(self, path: str, create: bool = False, attempt: int = 0, start: int = 0) -> None:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                # Zeros, not a hole: on a full file system, the first write into a mapped hole kills the process
                # (SIGBUS).
                size = os.fstat(descriptor).st_size
                while size < SIZE:
                    size += os.pwrite(descriptor, bytes(SIZE - size), size)
            self._page = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        (self._counter,) = _COUNTER.unpack(self._page[: _COUNTER.size])
        if create:
            self._page[_ORIGIN_AT : _ORIGIN_AT + _ORIGIN.size] = _ORIGIN.pack(attempt, start)
            self._page[_MADE_AT : _MADE_AT + _MADE.size] = _MADE.pack(time.monotonic())
            self._page[_WRITER_AT : _WRITER_AT + _WRITER.size] = _WRITER.pack(0)
            self.write(ProgressPage())

    def write(self, page: ProgressPage) -> None:
        """Replace the page's content."""
        following = (self._counter + 1) % _WRAP
        begin = _COPIES[following % 2]
        self._page[begin : begin + _LAYOUT.size] = _LAYOUT.pack(
            page.step,
            page.loss,
            page.samples_per_second,
            page.step_seconds,
            page.updated,
            PHASES.index(page.phase),
            page.checkpoint_step,
            page.resumed_step,
            page.busy_seconds,
            page.save_seconds,
            page.longest_seconds,
            page.total_steps,
            page.data_share,
            page.exchange_share,
            page.snapshot_share,
            page.tried,
            page.start_seconds,
            page.earlier_steps,
        )
        # Assigned as a whole: `pack_into` would clear the eight bytes first, and 0 says that the first copy is whole.
        self._page[: _COUNTER.size] = _COUNTER.pack(following)
        self._counter = following

    def read(self) -> ProgressPage:
        """Return the newest whole page."""
        body = b""
        for _ in range(64):  # a writer has never been seen to overtake a reader so often
            before = self._page[: _COUNTER.size]
            begin = _COPIES[before[0] % 2]
            body = self._page[begin : begin + _LAYOUT.size]
            if before == self._page[: _COUNTER.size]:
                break
        step, loss, speed, seconds, updated, phase, *more = _LAYOUT.unpack(body)
        name = PHASES[phase] if phase < len(PHASES) else PHASES[0]
        origin = _ORIGIN.unpack(self._page[_ORIGIN_AT : _ORIGIN_AT + _ORIGIN.size])
        return ProgressPage(step, loss, speed, seconds, updated, name, *more, *origin)

    @property
    def made(self) -> float:
        """Return when the agent has made the page, of the monotonic clock: the rank is started then."""
        (made,) = _MADE.unpack(self._page[_MADE_AT : _MADE_AT + _MADE.size])
        return float(made)

    @property
    def writer(self) -> int:
        """Return the process of a script that writes; 0 if none does so yet."""
        (writer,) = _WRITER.unpack(self._page[_WRITER_AT : _WRITER_AT + _WRITER.size])
        return abs(int(writer))

    def claim(self, process: int, only_counts: bool = False) -> bool:
        """Return whether `process` may write from now on: a script may start others, and the first has the page.

        One that has something to say takes it from one that only counts its steps.
        """
        here = slice(_WRITER_AT, _WRITER_AT + _WRITER.size)
        (writer,) = _WRITER.unpack(self._page[here])  # below 0: it only counts
        if (writer > 0 or only_counts) and abs(writer) not in (0, process) and is_alive(abs(writer)):
            return False
        self._page[here] = _WRITER.pack(-process if only_counts else process)
        (self._counter,) = _COUNTER.unpack(self._page[: _COUNTER.size])  # the one before may have written since
        return True

    def write_problem(self, step: int, text: str) -> None:
        """Write why the checkpoint of `step` could not be written; an empty text: it was."""
        data = text.encode(errors="replace")[:_LONGEST_PROBLEM]
        rest = _PROBLEM.pack(0, len(data), step)[4:] + data
        here = _PROBLEM_AT + len(rest) + 4
        self._page[_PROBLEM_AT:here] = struct.pack("<I", zlib.crc32(rest)) + rest

    def read_problem(self) -> Tuple[int, str]:
        """Return what `write_problem` wrote last; 0 and no text where there is none, or it is just being written."""
        start = _PROBLEM_AT + _PROBLEM.size
        checksum, length, step = _PROBLEM.unpack(self._page[_PROBLEM_AT:start])
        data = self._page[start : start + min(length, _LONGEST_PROBLEM)]
        if length == 0 or zlib.crc32(self._page[_PROBLEM_AT + 4 : start] + data) != checksum:
            return 0, ""
        return step, data.decode(errors="ignore")

    def write_checkpoint(self, record: CheckpointRecord) -> None:
        """Tell of a checkpoint that this rank has committed."""
        seconds = _NOTHING if record.seconds is None else record.seconds
        rest = _RECORD.pack(0, record.step, record.time, seconds, record.sha256.encode())[4:]
        self._page[_RECORD_AT : _RECORD_AT + _RECORD.size] = struct.pack("<I", zlib.crc32(rest)) + rest

    def read_checkpoint(self) -> Optional[CheckpointRecord]:
        """Return what `write_checkpoint` wrote last; None where it wrote nothing, or is just writing."""
        data = self._page[_RECORD_AT : _RECORD_AT + _RECORD.size]
        checksum, step, moment, seconds, digest = _RECORD.unpack(data)
        if zlib.crc32(data[4:]) != checksum or not math.isfinite(moment):
            return None
        text = digest.rstrip(b"\0").decode("ascii", errors="replace")
        if step < 0 or not text.isalnum():
            return None
        return CheckpointRecord(step, moment, text, seconds if math.isfinite(seconds) else None)

    def write_figures(self, figures: Figures) -> bool:
        """Write what a task has measured. Return whether there is room for it; else what was there stays."""
        data = codec.encode(figures)
        if len(data) > _LONGEST_FIGURES:
            return False
        here = slice(_FIGURES_AT, _FIGURES_AT + _FIGURES.size + len(data))
        self._page[here] = _FIGURES.pack(zlib.crc32(data), len(data)) + data
        return True

    def read_figures(self) -> Optional[Figures]:
        """Return what `write_figures` wrote last; None where it wrote nothing, or is just writing."""
        start = _FIGURES_AT + _FIGURES.size
        checksum, length = _FIGURES.unpack(self._page[_FIGURES_AT:start])
        data = self._page[start : start + min(length, _LONGEST_FIGURES)]
        if length == 0 or zlib.crc32(data) != checksum:
            return None
        try:
            return codec.decode(Figures, data)
        except codec.WireError:
            return None

    def close(self) -> None:
        """Unmap the page. The file stays."""
        self._page.close()
