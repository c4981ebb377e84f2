"""Ring passes chunks round a ring of ranks: they are added up on the first round and handed out on the second.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009); Baidu brought it to
deep learning in 2017. Every rank sends and receives 2S(N-1)/N bytes, the least that is possible, in 2(N-1) messages
one after the other. Where the elements do not divide by N, the chunks differ by one element.

Example, N = 3, what each rank holds of chunks a, b, c; `a01` is the sum of ranks 0 and 1:

    rank 0   a0   b0   c0     a0   b0  c02     a0  b120 c02       a  b  c
    rank 1   a1   b1   c1     a01  b1   c1     a01  b1  c201 ...  a  b  c
    rank 2   a2   b2   c2     a2   b12  c2    a012  b12  c2       a  b  c
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.reducer import Reducer, size_of
from trainmaster_trainer.collectives.tensor_links import TensorLinks
from trainmaster_trainer.data import Share


class Ring(Reducer):
    """Ring is the all-reduce along a ring of `ranks`, of which this is `rank`."""

    in_rank_order = False  # each chunk begins its round at another rank

    def __init__(self, links: TensorLinks, ranks: Sequence[int], rank: int) -> None:
        super().__init__()
        self.traffic = links.traffic
        self._links = links
        self._size = len(ranks)
        self._place = ranks.index(rank)
        self._right = ranks[(self._place + 1) % self._size]
        self._left = ranks[(self._place - 1) % self._size]

    @override
    def sum(self, tensor: Tensor) -> None:
        chunks = cut(tensor, self._size)
        buffer = torch.empty_like(chunks[0])
        for turn in range(self._size - 1):
            coming = self._chunk(chunks, -turn - 1)
            arrived = buffer[: len(coming)]
            self._pass_on(self._chunk(chunks, -turn), arrived)
            coming.add_(arrived)
        # Now this rank has the whole sum of the chunk after its own.
        for turn in range(self._size - 1):
            self._pass_on(self._chunk(chunks, 1 - turn), self._chunk(chunks, -turn))
        self.traffic.reduced += size_of(tensor)

    def _chunk(self, chunks: list[Tensor], offset: int) -> Tensor:
        return chunks[(self._place + offset) % self._size]

    def _pass_on(self, going: Tensor, coming: Tensor) -> None:
        self._links.exchange(send=[(going, self._right)], receive=[(coming, self._left)])


def cut(tensor: Tensor, parts: int) -> list[Tensor]:
    """Return a contiguous tensor's views of `parts` parts; they differ by at most one element, the first are bigger."""
    flat = tensor.view(-1)
    return [flat[slice(*Share(part, parts).bounds(len(flat)))] for part in range(parts)]
