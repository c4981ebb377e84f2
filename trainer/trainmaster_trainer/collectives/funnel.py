"""Send tensors to one rank and back, through the memory that the ranks of one host share.

It does what `driver.py` does with messages: as the inner level of Hierarchical, as OneDevice, and in CentralStorage.
"""

from __future__ import annotations

from torch import Tensor

from trainmaster_trainer.collectives.memory_slots import SemaphoreKind, Slots
from trainmaster_trainer.collectives.reducer import Traffic, size_of


class Funnel:
    """Funnel is the way between the first rank that shares `slots` and the others. The slots serve nothing else."""

    def __init__(self, slots: Slots) -> None:
        self.traffic = Traffic()
        self._slots = slots
        self._first, *self._others = slots.ranks
        self._is_first = slots.rank == self._first
        self._chunks = {"up": 0, "down": 0}  # only the others write on the way up, only the first on the way down

    def reduce(self, tensor: Tensor) -> None:
        """Add up the tensors in the order of ranks, on the first rank only."""
        for number, chunk in self._numbered("up", tensor):
            if not self._is_first:
                self._slots.put(number, chunk, [self._first])
                continue
            for other in self._others:
                self._slots.wait(SemaphoreKind.FULL, [other])
                chunk.add_(self._slots.slot(other, number, chunk))
            self._slots.post(SemaphoreKind.FREE, self._others)
        self._count(received=self._is_first, size=size_of(tensor))

    def broadcast(self, tensor: Tensor) -> None:
        """Copy the first rank's tensor to all ranks."""
        for number, chunk in self._numbered("down", tensor):
            if self._is_first:
                self._slots.put(number, chunk, self._others)
                continue
            self._slots.wait(SemaphoreKind.FULL, [self._first])
            chunk.copy_(self._slots.slot(self._first, number, chunk))
            self._slots.post(SemaphoreKind.FREE, [self._first])
        self._count(received=not self._is_first, size=size_of(tensor))

    def _numbered(self, way: str, tensor: Tensor) -> list[tuple[int, Tensor]]:
        chunks = self._slots.chunks(tensor)
        first = self._chunks[way]
        self._chunks[way] += len(chunks)
        return list(enumerate(chunks, first))

    def _count(self, received: bool, size: int) -> None:
        moved = size * (len(self._others) if self._is_first else 1)
        if received:
            self.traffic.received += moved
        else:
            self.traffic.sent += moved
