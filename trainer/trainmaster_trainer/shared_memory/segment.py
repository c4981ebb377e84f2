"""Make memory that one process creates and others map; it is gone with the last of them.

The maker has an anonymous file in memory (memfd) and says where it is: process and descriptor. A peer opens it through
/proc and looks for a random number in it; so host names, containers and mounts need not be compared, and a process of
the same number on another host is not mistaken for it. There is never a name in a file system: SIGKILL at any moment
leaves nothing behind, and the size of /dev/shm does not matter.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import mmap
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)
HEADER = 64  # bytes in front, which hold the random number
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Segment:
    """Segment is memory that one process made and its peers have mapped. `data` is all behind the header."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self._map = mmap.mmap(descriptor, HEADER + size, flags)
        self.data: Tensor = torch.frombuffer(self._map, dtype=torch.uint8, offset=HEADER)

    @property
    def address(self) -> int:
        """Return the address at which `data` begins in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._map)) + HEADER

    @property
    def view(self) -> memoryview:
        """Return the bytes of `data`."""
        return memoryview(self._map)[HEADER:]

    @property
    def mark(self) -> str:
        """Return the random number that its maker wrote."""
        return self._map[:HEADER].hex()

    def page(self) -> dict[str, Any]:
        """Return where a peer finds this segment. From here on this process holds a lock that ends with it."""
        self._map[:HEADER] = secrets.token_bytes(HEADER)
        # Of the kind that a forked child does not inherit.
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place = {"process": os.getpid(), "file": self._descriptor}
        return {"boot": _BOOT.read_text(), **place, "mark": self.mark}

    def owner_lives(self) -> bool:
        """Return whether the maker has not ended yet."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: all its peers may ask
        except (BlockingIOError, PermissionError):
            return True
        return False

    def close_file(self) -> None:
        """Close the file: it is neither opened nor asked for its owner any more. The memory stays with this object."""
        os.close(self._descriptor)


def create_segment(size: int) -> Segment | None:
    """Return memory of `size` zero bytes; None where the host has none to share."""
    try:
        descriptor = os.memfd_create("trainmaster")
    except OSError as error:
        log.warning("No memory to share on this host: %s.", error)
        return None
    try:
        os.posix_fallocate(descriptor, 0, HEADER + size)  # else a lack of memory shows as SIGBUS, later
        return Segment(descriptor, size)
    except OSError as error:
        log.warning("No memory to share on this host: %s.", error)
        os.close(descriptor)
        return None


def open_segment(page: Mapping[str, Any], size: int) -> Segment | None:
    """Return another process's memory, from its `page`; None if it is on another host, gone, or cannot be opened."""
    try:
        if page["boot"] != _BOOT.read_text():
            return None
        descriptor = os.open(f"/proc/{int(page['process'])}/fd/{int(page['file'])}", os.O_RDWR | os.O_CLOEXEC)
    except (KeyError, OSError, ValueError, TypeError):
        return None
    try:
        segment = Segment(descriptor, size)
    except (OSError, ValueError):  # it is too short, or no memory at all
        os.close(descriptor)
        return None
    if segment.mark == page["mark"]:
        return segment
    segment.close_file()
    return None
