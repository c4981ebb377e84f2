"""Send only the largest hundredth of each bucket of gradients; the rest waits for the next step.

Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (NeurIPS 2018); Lin et al., "Deep gradient compression"
(ICLR 2018). What was not sent is kept (`errors`, by bucket) and added to the next gradient; else the model would not
learn. The first step is sent whole, because DDP forms its buckets anew after it. A rank sends 8 bytes for each of its
k numbers (value and place) to each of its N-1 peers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainmaster_trainer.collectives.reducer import Reducer, size_of
from trainmaster_trainer.collectives.tensor_links import TensorLinks

PART = 100  # one of so many numbers is sent


class TopK:
    """TopK adds up sparse tensors, each with a number by which it is known again at the next step."""

    def __init__(self, links: TensorLinks, ranks: Sequence[int], rank: int, whole: Reducer) -> None:
        self.traffic = links.traffic
        self.errors: dict[int, Tensor] = {}
        self.starting = True
        self._links = links
        self._ranks = list(ranks)
        self._rank = rank
        self._whole = whole

    def sum(self, tensor: Tensor, bucket: int) -> None:
        """Replace a tensor by the sum of what the ranks have sent of theirs: the same bits on every rank."""
        if self.starting:
            self._whole.sum(tensor)
            return
        if bucket in self.errors:
            tensor.add_(self.errors[bucket])
        places = tensor.abs().topk(max(1, len(tensor) // PART), sorted=False).indices.to(torch.int32)
        values = tensor[places]
        tensor[places] = 0
        self.errors[bucket] = tensor.clone()
        self._add_up(tensor, places, values)

    def mean(self, tensor: Tensor, bucket: int) -> None:
        """Replace a tensor by that sum divided by the number of ranks."""
        self.sum(tensor, bucket)
        tensor.div_(len(self._ranks))

    def _add_up(self, tensor: Tensor, places: Tensor, values: Tensor) -> None:
        peers = [rank for rank in self._ranks if rank != self._rank]
        found = {peer: (torch.empty_like(places), torch.empty_like(values)) for peer in peers}
        self._links.exchange(
            send=[(half, peer) for peer in peers for half in (places, values)],
            receive=[(half, peer) for peer, halves in found.items() for half in halves],
        )
        found[self._rank] = (places, values)
        tensor.zero_()
        for rank in self._ranks:
            where, what = found[rank]
            tensor.index_add_(0, where, what)
        self.traffic.reduced += size_of(tensor)
