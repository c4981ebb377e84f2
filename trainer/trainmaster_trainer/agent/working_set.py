"""Give a child that stands by its own copies of the pages that a rank of the same parent has needed copies of.

A forked process shares its parent's memory until it writes there, and Python writes wherever it looks (it counts
references). So a rank stops 4,000 times on its way to the first step, 3 µs each, for the kernel to copy a page. Where
they are is known: ranks are forked from one process and do the same, so the next one will need what the last one did
(record and prefetch: Ustiugov et al., "Benchmarking, Analysis, and Optimization of Serverless Function Snapshots",
ASPLOS 2021). `of_rank` is for the parent, once, and `copy` for a child that stands by, where nothing waits for it.
"""

from __future__ import annotations

import mmap
import re
import sys
from pathlib import Path
from typing import Any, BinaryIO, Iterator, List, Tuple

from trainmaster_trainer.agent import memory_left, process

Pages = List[Tuple[int, int]]  # addresses and lengths in bytes

_PAGE = mmap.PAGESIZE
_EXCLUSIVE = 1 << 56  # of an entry of /proc/PID/pagemap: no other process has this page
_POPULATE_WRITE = 23  # madvise(2), Linux 5.14: as if each page were written to
_MOST_BYTES = 128 << 20  # where a rank has more, it is data of its own
_SHARE = 16  # of the memory that is left, the part that each child may take
_PRIVATE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p ", re.MULTILINE)


def of_rank(pid: int) -> Pages:
    """Return what the child `pid` of this process no longer shares with it; nothing if that cannot be found out.

    Call this before this process's memory is moved (`huge_pages`): all that a child has is its own afterwards.
    """
    if "numpy" not in sys.modules:
        return []
    try:
        with Path(f"/proc/{pid}/pagemap").open("rb") as file:
            # Children share this memory by the fork alone, and may write to it.
            inherited = [
                (int(found[1], 16), int(found[2], 16))
                for found in _PRIVATE.finditer(Path("/proc/self/maps").read_text())
            ]
            pages = [piece for start, end in inherited for piece in _exclusive(file, start, end)]
    except (OSError, ValueError):  # it has ended, or must not be looked at
        return []
    return pages if sum(length for _, length in pages) < _MOST_BYTES else []


def copy(pages: Pages) -> None:
    """Copy these pages. Where the kernel does not know how, they are copied when they are needed."""
    if memory_left.is_ample(sum(length for _, length in pages), _SHARE):
        for address, length in pages:
            process.advise(address, length, _POPULATE_WRITE)


def _exclusive(pagemap: BinaryIO, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Yield the parts of the memory between `start` and `end` that no other process has."""
    numpy: Any = sys.modules["numpy"]
    wanted = numpy.zeros((end - start) // _PAGE + 2, numpy.int8)
    wanted[1:-1] = numpy.frombuffer(_entries(pagemap, start, end), numpy.uint64) & _EXCLUSIVE > 0
    for first, after in numpy.flatnonzero(numpy.diff(wanted)).reshape(-1, 2).tolist():
        yield start + first * _PAGE, (after - first) * _PAGE


def _entries(pagemap: BinaryIO, start: int, end: int) -> bytes:
    """Return eight bytes for each page.

    Raises:
        ValueError: there are not as many, as that process has gone.
    """
    pagemap.seek(start // _PAGE * 8)
    entries = pagemap.read((end - start) // _PAGE * 8)
    if len(entries) != (end - start) // _PAGE * 8:
        raise ValueError("a process that has gone")
    return entries
