"""Gives a child that stands by its own copies of the pages that a rank of the same parent has needed copies of.

A forked process shares its parent's memory until it writes there, and Python writes wherever it looks (it counts
references). So a rank stops 4,000 times on its way to the first step, 3 µs each, for the kernel to copy a page. Where
they are is known: ranks are forked from one process and do the same, so the next one will need what the last one did
(record and prefetch: Ustiugov et al., "Benchmarking, Analysis, and Optimization of Serverless Function Snapshots",
ASPLOS 2021). Called by `children` in such a child, where nobody waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import re
import sys
from pathlib import Path
from typing import Any, BinaryIO, Iterator, List, Tuple

from trainmaster_trainer.agent import room

_PAGE = mmap.PAGESIZE
_EXCLUSIVE = 1 << 56  # of an entry of /proc/PID/pagemap: no other process has this page
_POPULATE_WRITE = 23  # madvise(2), Linux 5.14: as if each page were written to
_MOST_BYTES = 256 << 20  # what a rank has of its own may be large data: that is made, not inherited
_SHARE = 8  # of the memory that is left, the part that this may take
_PRIVATE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p ", re.MULTILINE)


def take_over(pid: int) -> None:
    """Have the pages that the process `pid` no longer shares with its parent, if that can be found out."""
    if "numpy" not in sys.modules:
        return
    with contextlib.suppress(OSError, ValueError):  # it has ended, or must not be looked at
        with _pagemap(str(pid)) as theirs, _pagemap("self") as ours:
            pieces = [piece for start, end in _inherited() for piece in _missing(theirs, ours, start, end)]
        if sum(length for _, length in pieces) < min(_MOST_BYTES, min(room.memory_left(), default=0) // _SHARE):
            _copy(pieces)


def _inherited() -> List[Tuple[int, int]]:
    """Where memory begins and ends that this process may write to and shares with nobody but by the fork."""
    return [(int(found[1], 16), int(found[2], 16)) for found in _PRIVATE.finditer(Path("/proc/self/maps").read_text())]


def _missing(theirs: BinaryIO, ours: BinaryIO, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Address and length of what is between `start` and `end` theirs alone and not yet ours."""
    numpy: Any = sys.modules["numpy"]
    there, here = (numpy.frombuffer(_entries(file, start, end), numpy.uint64) & _EXCLUSIVE for file in (theirs, ours))
    wanted = numpy.zeros(len(there) + 2, numpy.int8)
    wanted[1:-1] = there > here
    for first, after in numpy.flatnonzero(numpy.diff(wanted)).reshape(-1, 2).tolist():
        yield start + first * _PAGE, (after - first) * _PAGE


def _pagemap(process: str) -> BinaryIO:
    return Path(f"/proc/{process}/pagemap").open("rb")


def _entries(file: BinaryIO, start: int, end: int) -> bytes:
    """Eight bytes for each page.

    Raises:
        ValueError: there are not as many, as that memory has gone.
    """
    file.seek(start // _PAGE * 8)
    entries = file.read((end - start) // _PAGE * 8)
    if len(entries) != (end - start) // _PAGE * 8:
        raise ValueError("memory that has gone")
    return entries


def _copy(pieces: List[Tuple[int, int]]) -> None:
    """A kernel that does not know how answers with an error, and they are copied when they are needed."""
    madvise = ctypes.CDLL(None).madvise
    for address, length in pieces:
        madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), _POPULATE_WRITE)
