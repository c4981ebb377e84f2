"""SharedMemory is the all-reduce between processes of one host, without a byte on the network.

A tensor goes through in chunks that fit a core's cache, and while one is added up the next is being written. With
two ranks, or a small tensor, each rank reads all slots and adds up all (one wait). Else each rank adds up its part of
the chunk and reads the sums of the others (two waits, but each element is added once). The order is always that of the
ranks: the sum of an element does not depend on its place, on the size of the tensor or on which rank was first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.memory_slots import SemaphoreKind, Slots
from trainmaster_trainer.collectives.reducer import Reducer, size_of
from trainmaster_trainer.collectives.ring import cut

Finish = Callable[[Tensor], object]
SMALL = 1 << 15  # bytes: below, a second wait costs more than adding up in every rank
_TWO = 2


class SharedMemory(Reducer):
    """SharedMemory is the all-reduce among the ranks that share `slots`."""

    in_rank_order = True

    def __init__(self, slots: Slots) -> None:
        super().__init__()
        self._slots = slots
        self._ranks = slots.ranks
        self._place = slots.ranks.index(slots.rank)

    @override
    def sum(self, tensor: Tensor) -> None:
        self._reduce(tensor, _leave)

    @override
    def mean(self, tensor: Tensor, ranks: int) -> None:
        self._reduce(tensor, partial(_divide, ranks))

    def _reduce(self, tensor: Tensor, finish: Finish) -> None:
        """Add up a tensor. `finish` gets each sum while it still is in the core's cache."""
        size = size_of(tensor)
        direct = len(self._ranks) == _TWO or size <= SMALL
        add = partial(self._add if direct else self._add_part, finish)
        stages = (self._put, add) if direct else (self._put, add, self._collect)
        self._slots.pass_through(self._slots.chunks(tensor), stages)
        # Each byte that one rank writes and another reads counts as sent and received: S to each peer, or a ring's.
        peers = len(self._ranks) - 1
        moved = size * peers if direct else 2 * size * peers // len(self._ranks)
        self.traffic.sent += moved
        self.traffic.received += moved
        self.traffic.reduced += size

    def _put(self, number: int, chunk: Tensor) -> None:
        self._slots.put(number, chunk, self._slots.peers)

    def _add(self, finish: Finish, number: int, chunk: Tensor) -> None:
        slots = self._slots
        slots.wait(SemaphoreKind.FULL, slots.peers)
        parts = [slots.slot(rank, number, chunk) for rank in self._ranks]
        if len(parts) == _TWO:
            parts[self._place] = chunk  # of two, either may be written over; and the slot need not be read
        add_up(parts, chunk)
        slots.post(SemaphoreKind.FREE, slots.peers)
        finish(chunk)

    def _add_part(self, finish: Finish, number: int, chunk: Tensor) -> None:
        slots = self._slots
        slots.wait(SemaphoreKind.FULL, slots.peers)
        parts = [cut(slots.slot(rank, number, chunk), len(self._ranks))[self._place] for rank in self._ranks]
        result = slots.result(slots.rank, number, parts[0])
        add_up(parts, result)
        finish(result)
        slots.post(SemaphoreKind.SUMMED, slots.peers)

    def _collect(self, number: int, chunk: Tensor) -> None:
        slots = self._slots
        slots.wait(SemaphoreKind.SUMMED, slots.peers)
        for rank, part in zip(self._ranks, cut(chunk, len(self._ranks)), strict=True):
            part.copy_(slots.result(rank, number, part))
        slots.post(SemaphoreKind.FREE, slots.peers)


def add_up(parts: Sequence[Tensor], result: Tensor) -> None:
    """Write the sum from first to last into `result`, which may be one of the first two, and none of the others."""
    torch.add(parts[0], parts[1], out=result)
    for part in parts[2:]:
        result.add_(part)


def _leave(_: Tensor) -> None:
    """Leave a sum as it is."""


def _divide(ranks: int, total: Tensor) -> None:
    total.div_(ranks)
