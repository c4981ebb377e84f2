"""Reducer is the interface of all ways to add up a tensor over ranks; it counts the bytes that each rank moves.

S is the size of a tensor in bytes and N the number of ranks in the formulas of the implementations; the tests hold
the counters to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


@dataclass
class Traffic:
    """Traffic counts the bytes of one rank since the beginning. `reduced`: those of the tensors that were added up."""

    sent: int = 0
    received: int = 0
    reduced: int = 0


class Reducer(ABC):
    """Reducer adds up tensors over the ranks of a group. All ranks call the same methods in the same order."""

    in_rank_order: bool
    """Each element is ((rank 0 + rank 1) + rank 2) ..., wherever in the tensor it lies."""

    def __init__(self) -> None:
        self.traffic = Traffic()

    @abstractmethod
    def sum(self, tensor: Tensor) -> None:
        """Replace a contiguous tensor by the sum of those of all ranks: the same bits on every rank.

        Raises:
            RuntimeError: a peer is gone, or was not heard of for the process group's timeout.
        """

    def mean(self, tensor: Tensor, ranks: int) -> None:
        """Replace it by the sum divided by `ranks`, how many there are. Raises as `sum` does."""
        self.sum(tensor)
        tensor.div_(ranks)


def size_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()
