"""Memory that the ranks of one host share: found out by really opening it, and gone with the last process.

Every rank makes an anonymous file in memory (memfd) and tells its peers in the store where it is: process and
descriptor. A peer opens it through /proc and looks for a random number in it; so host names, containers and mounts
need not be compared, and a process of the same number on another host is not mistaken for it. There is never a name
in a file system: SIGKILL at any moment leaves nothing behind, and the size of /dev/shm does not matter.

Used by `choose.py` and by the strategy CentralStorage.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import mmap
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainmaster_trainer.group import Group

log = logging.getLogger(__name__)
HEADER = 64  # bytes in front, which hold the random number
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class PeerLostError(RuntimeError):
    """A rank that shares memory with this one has ended, or says nothing any more."""


class Segment:
    """Memory that one rank made and its peers have mapped. `data` is all behind the header."""

    def __init__(self, descriptor: int, size: int, owner: int) -> None:
        self.owner = owner
        self._descriptor = descriptor
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self._map = mmap.mmap(descriptor, HEADER + size, flags)
        self.data: Tensor = torch.frombuffer(self._map, dtype=torch.uint8, offset=HEADER)

    @property
    def address(self) -> int:
        """Where `data` begins in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._map)) + HEADER

    @property
    def mark(self) -> str:
        """The random number that its maker wrote."""
        return self._map[:HEADER].hex()

    def page(self) -> dict[str, Any]:
        """Where a peer finds it. From here on a lock is held that ends with this process."""
        self._map[:HEADER] = secrets.token_bytes(HEADER)
        # Of the kind that a forked child does not inherit.
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place = {"process": os.getpid(), "file": self._descriptor}
        return {"boot": _BOOT.read_text(), **place, "mark": self.mark}

    def check_owner(self) -> None:
        """See whether the maker still lives.

        Raises:
            PeerLostError: it does not.
        """
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: all its peers may ask
        except (BlockingIOError, PermissionError):
            return
        raise PeerLostError(f"rank {self.owner}, which shares memory with this rank, has ended")


def connect(
    group: Group,
    name: str,
    ranks: Sequence[int],
    size: int,
    *,
    owners: Sequence[int] | None = None,
    prepare: Callable[[Segment], None] = lambda _: None,
) -> dict[int, Segment] | None:
    """Memory of `size` bytes of each of `owners` (all of `ranks` by default), by rank, for all of `ranks`.

    None, on all of them, if one cannot reach it. All of `ranks` call it; `name` is used once. `prepare` gets an
    owner's own memory before a peer sees it.
    """
    owners = ranks if owners is None else owners
    own = _create(size, group.rank) if group.rank in owners else None
    page: dict[str, Any] = {}
    if own:
        prepare(own)
        page = own.page()
    pages = _tell(group, f"{name}/page", ranks, page)
    found = {peer: own if peer == group.rank else _open(pages[peer], size, peer) for peer in owners}
    complete = {peer: segment for peer, segment in found.items() if segment}
    answers = _tell(group, f"{name}/found", ranks, len(complete) == len(owners))
    return complete if all(answers.values()) else None


def _create(size: int, rank: int) -> Segment | None:
    try:
        descriptor = os.memfd_create(f"trainmaster-{rank}")
        os.posix_fallocate(descriptor, 0, HEADER + size)  # else a lack of memory shows as SIGBUS, later
        return Segment(descriptor, size, rank)
    except OSError as error:
        log.warning("No memory to share with the peers on this host: %s.", error)
        return None


def _open(page: dict[str, object], size: int, peer: int) -> Segment | None:
    try:
        if page["boot"] != _BOOT.read_text():
            return None
        descriptor = os.open(f"/proc/{page['process']}/fd/{page['file']}", os.O_RDWR | os.O_CLOEXEC)
        segment = Segment(descriptor, size, peer)
    except (KeyError, OSError, ValueError):  # none, gone, another's, not to be opened, or too short
        return None
    return segment if segment.mark == page["mark"] else None


def _tell(group: Group, key: str, ranks: Sequence[int], value: Any) -> dict[int, Any]:
    """Everybody's value, by rank."""
    group.store.set(f"{key}/{group.rank}", json.dumps(value))
    return {peer: json.loads(group.store.get(f"{key}/{peer}")) for peer in ranks}
