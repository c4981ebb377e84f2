"""Divide shared memory into slots, into which a rank puts chunks for its peers to read, in turn.

Between each writer and each of its readers there are two semaphores: one counts the chunks that are there to be read,
the other the slots that may be written over. That is the bounded buffer of Dijkstra (1965), with several readers.

All ranks that share memory must agree on `SlotLayout`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from trainmaster_trainer.collectives.peer_memory import MemoryPeerLostError, connect
from trainmaster_trainer.group import Group
from trainmaster_trainer.shared_memory import semaphores
from trainmaster_trainer.shared_memory.segment import Segment
from trainmaster_trainer.shared_memory.semaphores import Semaphore

Chunk = TypeVar("Chunk")
Stage = Callable[[int, Chunk], None]  # gets a chunk and its number


class SemaphoreKind(IntEnum):
    """SemaphoreKind is what a semaphore counts. It lies in the memory of the rank that waits, one for each peer."""

    FULL = 0  # chunks that the peer has put into a slot
    FREE = 1  # of my slots, those that the peer has read
    SUMMED = 2  # results of the peer that are ready


@dataclass(frozen=True)
class SlotLayout:
    """SlotLayout divides a rank's memory: semaphores, slots, results. `chunk`: bytes of a slot, which fit a cache."""

    ranks: int
    chunk: int = 1 << 19
    slots: int = 4

    @property
    def first_slot(self) -> int:
        """Return the byte at which the slots begin."""
        return len(SemaphoreKind) * self.ranks * semaphores.SIZE

    @property
    def first_result(self) -> int:
        """Return the byte at which the results begin."""
        return self.first_slot + self.slots * self.chunk

    @property
    def size(self) -> int:
        """Return the bytes of memory of one rank."""
        return self.first_result + self.slots * self.chunk

    def semaphore(self, kind: SemaphoreKind, place: int) -> int:
        """Return the byte at which the semaphore for the peer at `place` lies."""
        return (kind * self.ranks + place) * semaphores.SIZE


class Slots:
    """Slots is the memory of `ranks`, seen from `rank`."""

    def __init__(self, segments: dict[int, Segment], rank: int, layout: SlotLayout, patience: timedelta) -> None:
        self.layout = layout
        self.ranks = list(segments)
        self.rank = rank
        self.peers = [peer for peer in self.ranks if peer != rank]
        self._segments = segments
        self._patience = patience
        self._passed = 0  # chunks since the beginning
        self._views: dict[tuple[int, int, torch.dtype], list[Tensor]] = {}
        mine = self.ranks.index(rank)
        self._own = {kind: {peer: self._semaphore(rank, kind, peer) for peer in self.peers} for kind in SemaphoreKind}
        self._theirs = {
            kind: {peer: Semaphore(segments[peer].address + layout.semaphore(kind, mine)) for peer in self.peers}
            for kind in SemaphoreKind
        }

    def _semaphore(self, owner: int, kind: SemaphoreKind, peer: int) -> Semaphore:
        place = self.ranks.index(peer)
        return Semaphore(self._segments[owner].address + self.layout.semaphore(kind, place))

    def post(self, kind: SemaphoreKind, peers: Sequence[int]) -> None:
        """Count up the semaphores of this kind at these peers."""
        semaphores_of = self._theirs[kind]
        for peer in peers:
            semaphores_of[peer].post()

    def chunks(self, tensor: Tensor) -> Sequence[Tensor]:
        """Return views of a contiguous tensor, each as big as a slot; the last may be smaller."""
        return torch.split(tensor.view(-1), self.layout.chunk // tensor.element_size())

    def wait(self, kind: SemaphoreKind, peers: Sequence[int]) -> None:
        """Wait until each of these peers has counted up its semaphore of this kind here.

        Raises:
            PeerLostError: one has ended, or has been silent for the timeout.
        """
        semaphores_of = self._own[kind]
        for peer in peers:
            deadline = time.monotonic() + self._patience.total_seconds()
            semaphores_of[peer].wait(partial(self._watch, peer, deadline))

    def _watch(self, peer: int, deadline: float) -> None:
        # Another rank that has ended may have had its part of all that was exchanged. If not, `peer` misses it as well.
        if not self._segments[peer].owner_lives():
            raise MemoryPeerLostError(f"rank {peer}, which shares memory with this rank, has ended")
        if time.monotonic() > deadline:
            raise MemoryPeerLostError(f"rank {peer} was silent for {self._patience.total_seconds():.0f} s")

    def pass_through(self, chunks: Sequence[Chunk], stages: Sequence[Stage[Chunk]]) -> None:
        """Pass each chunk through the stages, one stage behind the chunk before it.

        All ranks number the chunks from the beginning, whatever they are for: chunk n is in slot n modulo the number of
        slots. Readers post FREE once for each.
        """
        first, self._passed = self._passed, self._passed + len(chunks)
        for turn in range(len(chunks) + len(stages) - 1):
            for behind, stage in enumerate(stages):
                if 0 <= turn - behind < len(chunks):
                    stage(first + turn - behind, chunks[turn - behind])

    def put(self, number: int, chunk: Tensor, readers: Sequence[int]) -> None:
        """Put a chunk into the next slot, when its readers have read what was there."""
        self.wait(SemaphoreKind.FREE, readers)
        self.slot(self.rank, number, chunk).copy_(chunk)
        self.post(SemaphoreKind.FULL, readers)

    def slot(self, owner: int, number: int, like: Tensor) -> Tensor:
        """Return the slot of `owner` for chunk `number`, with as many elements as `like`."""
        return self._view(owner, self.layout.first_slot, number, like)

    def result(self, owner: int, number: int, like: Tensor) -> Tensor:
        """Return where `owner` puts its part of the sum of chunk `number`."""
        return self._view(owner, self.layout.first_result, number, like)

    def _view(self, owner: int, first: int, number: int, like: Tensor) -> Tensor:
        key = (owner, first, like.dtype)
        if key not in self._views:
            end = first + self.layout.slots * self.layout.chunk
            area = self._segments[owner].data[first:end].view(like.dtype)
            self._views[key] = list(area.chunk(self.layout.slots))
        view = self._views[key][number % self.layout.slots]
        return view if len(view) == len(like) else view[: len(like)]


def share_slots(group: Group, name: str, ranks: Sequence[int], chunk: int = SlotLayout.chunk) -> Slots | None:
    """Return slots that these ranks share; None, on all of them, if one cannot."""
    layout = SlotLayout(len(ranks), chunk)

    def prepare(segment: Segment) -> None:
        for kind in SemaphoreKind:
            for place in range(len(ranks)):
                value = layout.slots if kind == SemaphoreKind.FREE else 0
                Semaphore(segment.address + layout.semaphore(kind, place)).create(value)

    segments = connect(group, name, ranks, layout.size, prepare=prepare)
    return Slots(segments, group.rank, layout, group.patience) if segments else None
