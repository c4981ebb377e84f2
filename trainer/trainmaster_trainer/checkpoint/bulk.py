"""Write large files to the disk, past the page cache.

New pages of the cache cost the processor more than the disk does (bench/checkpoint.py), and a checkpoint in them
drives out what training reads. So blocks go straight to the disk (open(2), O_DIRECT), by two threads in turn: from
where they are (`image.py`), or out of two small aligned buffers, of which one is filled while the other's is written.
Where a file system cannot do that, or is nothing but memory, and for the last bytes, which fill no sector, the file is
written as usual. The caller syncs it in either case.
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import fcntl
import itertools
import mmap
import operator
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from trainmaster_trainer.checkpoint.layout import write_all

WORTH = 16 << 20  # bytes; a smaller file may stay in the cache, where the next reader finds it
BLOCK = 8 << 20  # bytes, many sectors of any disk
_SECTOR = 4096
_TMPFS = 0x01021994  # statfs(2): it takes O_DIRECT, but two threads that write only get into each other's way
_MOST_STATFS = 256  # more than a struct statfs takes; its first word is the kind
_THREADS = 2


Arrival = Callable[[str], None]  # returns when the bytes of the part of this name are there
Parts = Mapping[str, memoryview]  # in the order of the file


def write_parts(
    descriptor: int, parts: Parts, length: int, arrival: Arrival = lambda _: None, image: memoryview | None = None
) -> None:
    """Write `parts`, `length` bytes together, from the start of a new file; each part as soon as it has arrived.

    `image`: page-aligned memory where they lie in a row already, if there is such.

    Raises:
        OSError: the disk is full, or broken.
    """
    if length < WORTH or not _go_past_cache(descriptor):
        for name, part in parts.items():
            arrival(name)
            write_all(descriptor, part)
        return
    # Room for the whole file, where the file system can reserve it (`posix_fallocate` would write zeros elsewhere).
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.fallocate(descriptor, 0, ctypes.c_long(0), ctypes.c_long(length))
    if failed and ctypes.get_errno() == errno.ENOSPC:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with ThreadPoolExecutor(_THREADS, "checkpoint-disk") as disk:
        ends = itertools.accumulate(map(len, parts.values()))
        file = _PartsFile(list(zip(parts, parts.values(), ends, strict=True)), arrival, image)
        for _ in disk.map(partial(file.write_every_other_block, descriptor, length), range(_THREADS)):
            continue  # its error, if it has one, is raised here


@dataclass(frozen=True)
class _PartsFile:
    """Hold the bytes of all parts in a row: of each its name, its bytes, and where they end."""

    parts: list[tuple[str, memoryview, int]]
    arrival: Arrival
    image: memoryview | None

    def write_every_other_block(self, descriptor: int, length: int, first: int) -> None:
        """Write each block from this one on that the other thread does not."""
        # Page-aligned memory, as the disk needs it: the image, or a fresh buffer.
        with memoryview(aligned_memory(BLOCK)) if self.image is None else nullcontext(self.image) as page:
            for position in range(first * BLOCK, length, _THREADS * BLOCK):
                block, written = self.block(page, position, min(BLOCK, length - position)), 0
                if len(block) % _SECTOR == 0:
                    try:
                        written = os.pwrite(descriptor, block, position)
                    except OSError as error:
                        if error.errno != errno.EINVAL:  # a disk with stranger rules
                            raise
                if written < len(block):  # the end of the file, or of the room on the disk
                    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
                while written < len(block):
                    written += os.pwrite(descriptor, block[written:], position + written)

    def block(self, page: memoryview, position: int, size: int) -> memoryview:
        """Return the bytes from `position` on, when they are there. NumPy releases the interpreter's lock meanwhile."""
        block = page[:size] if self.image is None else self.image[position : position + size]
        for number in range(bisect.bisect_right(self.parts, position, key=operator.itemgetter(2)), len(self.parts)):
            name, part, end = self.parts[number]
            begin = end - len(part)
            if begin >= position + size:
                break
            first, last = max(begin, position), min(end, position + size)
            if first < last:
                self.arrival(name)
                if self.image is None:
                    source = np.frombuffer(part, np.uint8, last - first, first - begin)
                    np.copyto(np.frombuffer(block, np.uint8)[first - position : last - position], source)
        return block


def aligned_memory(size: int) -> mmap.mmap:
    """Return fresh memory that begins with a page; with huge pages, where the kernel has them."""
    memory = mmap.mmap(-1, size)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _go_past_cache(descriptor: int) -> bool:
    """Set O_DIRECT. Return whether this file system can do that, and gains by it."""
    told = ctypes.create_string_buffer(_MOST_STATFS)
    ctypes.CDLL(None).fstatfs(descriptor, told)
    if ctypes.c_long.from_buffer(told).value == _TMPFS:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True
