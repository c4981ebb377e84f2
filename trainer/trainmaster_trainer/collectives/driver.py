"""Driver has all ranks send to one, which adds up in the order of ranks and sends the sum back.

It is the simplest all-reduce, and the one to compare with. The driver sends (N-1)S and receives (N-1)S bytes,
2(N-1)S in all, and all ranks wait for its link; every other rank sends S and receives S.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.reducer import Reducer, size_of
from trainmaster_trainer.collectives.tensor_links import TensorLinks


class Driver(Reducer):
    """Driver is the all-reduce through the first of `ranks`."""

    in_rank_order = True

    def __init__(self, links: TensorLinks, ranks: Sequence[int], rank: int) -> None:
        super().__init__()
        self.traffic = links.traffic
        self._links = links
        self._driver, *self._others = ranks
        self._drives = rank == self._driver

    @override
    def sum(self, tensor: Tensor) -> None:
        self.reduce(tensor)
        self.broadcast(tensor)
        self.traffic.reduced += size_of(tensor)

    def reduce(self, tensor: Tensor) -> None:
        """Add up the tensors of all ranks, on the driver only."""
        if not self._drives:
            self._links.exchange(send=[(tensor, self._driver)])
            return
        arrived = [torch.empty_like(tensor) for _ in self._others]
        self._links.exchange(receive=list(zip(arrived, self._others, strict=True)))
        for addend in arrived:
            tensor.add_(addend)

    def broadcast(self, tensor: Tensor) -> None:
        """Copy the driver's tensor to all ranks."""
        if self._drives:
            self._links.exchange(send=[(tensor, other) for other in self._others])
        else:
            self._links.exchange(receive=[(tensor, self._driver)])
