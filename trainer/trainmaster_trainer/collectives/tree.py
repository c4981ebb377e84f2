"""Tree adds up pairs of ranks, then pairs of pairs, and copies the sum back down the same way.

TensorFlow calls it HierarchicalCopyAllReduce; it suits devices that are linked in pairs. log2(N) messages go up and
as many down, one after the other. Each rank sends to its parent once and to each child once, S bytes a message; the
root has log2(N) children (rounded up).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.reducer import Reducer, size_of
from trainmaster_trainer.collectives.tensor_links import TensorLinks


class Tree(Reducer):
    """Tree is the all-reduce along the binomial tree of `ranks`."""

    in_rank_order = True  # not one after the other, but in an order that does not depend on the place of an element

    def __init__(self, links: TensorLinks, ranks: Sequence[int], rank: int) -> None:
        super().__init__()
        self.traffic = links.traffic
        self._links = links
        place = ranks.index(rank)
        self._children = [ranks[child] for child in children(place, len(ranks))]
        self._parent = ranks[place & (place - 1)] if place else None

    @override
    def sum(self, tensor: Tensor) -> None:
        arrived = torch.empty_like(tensor)
        for child in self._children:
            self._links.exchange(receive=[(arrived, child)])
            tensor.add_(arrived)
        if self._parent is not None:
            self._links.exchange(send=[(tensor, self._parent)])
            self._links.exchange(receive=[(tensor, self._parent)])
        self._links.exchange(send=[(tensor, child) for child in reversed(self._children)])
        self.traffic.reduced += size_of(tensor)


def children(place: int, size: int) -> Iterator[int]:
    """Yield the children, nearest first: 0 has 1, 2, 4, ...; 2 has 3; 4 has 5 and 6.

    A parent is its child without the lowest bit that is set.
    """
    step = 1
    while not place & step and place + step < size:
        yield place + step
        step *= 2
