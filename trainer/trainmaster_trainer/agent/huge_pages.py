"""Put the memory of the process from which ranks are forked into huge pages, so that forks and deaths are quick.

A fork copies an entry for each page that is no file's, and an end drops as many: with torch 100,000 of them, 10 ms
and more for each fork and each end, and a restart waits for two ends. In huge pages it is a third. glibc is asked for
them at the start (`names.WARM_ENVIRONMENT`), but most of this memory is Python's and the libraries' own.

It is done a piece at a time, when there is nothing else to do: all of it takes up to a second of the processor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, Optional, Tuple

from trainmaster_trainer.agent import memory_left, process

_HUGE = 2 << 20
_PIECE = 4 * _HUGE  # some 20 ms
_COLLAPSE = 25  # madvise(2), MADV_COLLAPSE: Linux 6.1, whatever the administrator has set for huge pages
_SHARE = 8  # of the memory that is left, the part that this may take: children keep the old pages as long as they live
_FIRST_LINE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s+(?:\[heap\])?$")


class HugePages:
    """HugePages moves a process's memory into huge pages, once in its life."""

    def __init__(self) -> None:
        self._pieces: Optional[Iterator[Tuple[int, int]]] = None
        self.done = False
        self.of_use = False  # some of the memory is in huge pages now

    @property
    def begun(self) -> bool:
        """Return whether some of the memory may have moved: children that are there have it where it was."""
        return self._pieces is not None

    def take_one(self) -> None:
        """Move the next piece. One that the kernel refuses, perhaps as it is in use at the moment, stays as it is."""
        if self._pieces is None:
            pieces = [piece for start, end in _own_memory() for piece in _pieces(start, end)]
            needed = sum(length for _, length in pieces)
            self._pieces = iter(pieces if memory_left.is_ample(needed, _SHARE) else [])
        address, length = next(self._pieces, (0, 0))
        self.done = not length
        self.of_use = (length > 0 and process.advise(address, length, _COLLAPSE)) or self.of_use


def _pieces(start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Yield addresses and lengths in bytes, of whole huge pages."""
    first, last = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
    for address in range(first, last, _PIECE):
        yield address, min(_PIECE, last - address)


def _own_memory() -> Iterator[Tuple[int, int]]:
    """Yield where memory begins and ends that is no file's and in use: what is half empty would be filled."""
    begin = end = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        found = _FIRST_LINE.match(line)
        if found:
            begin, end = int(found[1], 16), int(found[2], 16)
        elif line.startswith("Anonymous:") and end:
            used = int(line.split()[1]) << 10
            if used > (end - begin) * 3 // 4:
                yield begin, end
            begin = end = 0
