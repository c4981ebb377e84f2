"""Large files to the disk, past the page cache.

New pages of the cache cost the processor more than the disk does (bench/checkpoint.py), and a checkpoint in them
drives out what training reads. So blocks go from two small aligned buffers straight to the disk (open(2), O_DIRECT),
by two threads in turn: one fills its buffer while the other's is written. Where a file system cannot do that, and for
the last bytes, which fill no sector, it is written as usual. Used by `shard.py`, which syncs the file in either case.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np

from trainmaster_trainer.checkpoint.layout import write_all

WORTH = 16 << 20  # bytes; a smaller file may stay in the cache, where the next reader finds it
BLOCK = 8 << 20  # bytes, many sectors of any disk
_SECTOR = 4096
_THREADS = 2


def write_parts(descriptor: int, parts: Sequence[memoryview], length: int) -> None:
    """Write `parts`, `length` bytes together, from the start of a new file.

    Raises:
        OSError: the disk is full, or broken.
    """
    if length < WORTH or not _go_past_cache(descriptor):
        for part in parts:
            write_all(descriptor, part)
        return
    _reserve(descriptor, length)
    with ThreadPoolExecutor(_THREADS, "checkpoint-disk") as disk:
        for _ in disk.map(partial(_write_every_other_block, descriptor, parts, length), range(_THREADS)):
            continue  # its error, if it has one, is raised here


def _write_every_other_block(descriptor: int, parts: Sequence[memoryview], length: int, first: int) -> None:
    buffer = mmap.mmap(-1, BLOCK)  # page-aligned, as the disk asks for
    with suppress(OSError):
        buffer.madvise(mmap.MADV_HUGEPAGE)
    ends = list(itertools.accumulate(map(len, parts)))
    with memoryview(buffer) as page:
        for position in range(first * BLOCK, length, _THREADS * BLOCK):
            block = page[: min(BLOCK, length - position)]
            _fill(block, position, parts, ends)
            _write_block(descriptor, block, position)


def _fill(block: memoryview, position: int, parts: Sequence[memoryview], ends: Sequence[int]) -> None:
    """The bytes of all parts in a row, from `position` on. NumPy lets the training have the interpreter meanwhile."""
    target = np.frombuffer(block, np.uint8)
    for part, end in zip(parts, ends, strict=True):
        begin = end - len(part)
        first, last = max(begin, position), min(end, position + len(block))
        if first < last:
            source = np.frombuffer(part, np.uint8, last - first, first - begin)
            np.copyto(target[first - position : last - position], source)


def _write_block(descriptor: int, block: memoryview, position: int) -> None:
    written = 0
    if len(block) % _SECTOR == 0:
        try:
            written = os.pwrite(descriptor, block, position)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a disk with stranger rules
                raise
    if written < len(block):  # the end of the file, or of the room on the disk
        _go_through_cache(descriptor)
    while written < len(block):
        written += os.pwrite(descriptor, block[written:], position + written)


def _reserve(descriptor: int, length: int) -> None:
    """Room for all of it at once, where the file system can (Python's `posix_fallocate` would write zeros elsewhere).

    Raises:
        OSError: there is not enough.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.fallocate(descriptor, 0, ctypes.c_long(0), ctypes.c_long(length))
    if failed and ctypes.get_errno() == errno.ENOSPC:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _go_past_cache(descriptor: int) -> bool:
    """Whether this file system can do it."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True


def _go_through_cache(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
