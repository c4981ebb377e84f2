"""Send tensors as bytes, each block of numbers with a scale of its own: a quarter of float32's traffic.

Every rank sends each peer that peer's part, adds up its own part in full precision and in the order of ranks, and
sends the sum to all: 2S(N-1)/N bytes of the smaller size, as a ring's, with two roundings on each number's way
(Alistarh et al., QSGD, NeurIPS 2017; Dettmers, "8-bit approximations for parallelism in deep learning", 2016). torch's
own quantization hook gathers all tensors on all ranks, N/2 times as much. Nothing is remembered between steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.reducer import Reducer, size_of
from trainmaster_trainer.collectives.ring import cut
from trainmaster_trainer.collectives.tensor_links import TensorLinks

BLOCK = 256
LARGEST = 127
Packed = tuple[Tensor, Tensor]  # bytes, and the scale of each block


class Int8(Reducer):
    """Int8 is the all-reduce of quantized numbers over `ranks`."""

    in_rank_order = False  # what a number is rounded to depends on its neighbours

    def __init__(self, links: TensorLinks, ranks: Sequence[int], rank: int) -> None:
        super().__init__()
        self.traffic = links.traffic
        self._links = links
        self._ranks = list(ranks)
        self._rank = rank

    @override
    def sum(self, tensor: Tensor) -> None:
        parts = dict(zip(self._ranks, cut(tensor, len(self._ranks)), strict=True))
        mine = parts.pop(self._rank)
        arrived = self._exchange({peer: pack(part) for peer, part in parts.items()}, dict.fromkeys(parts, mine))
        addends = [unpack(arrived[rank], mine) if rank in arrived else mine for rank in self._ranks]
        total = addends[0].clone()
        for addend in addends[1:]:
            total.add_(addend)
        packed = pack(total)
        sums = self._exchange(dict.fromkeys(parts, packed), parts)
        mine.copy_(unpack(packed, mine))  # what the others see, not the exact sum
        for peer, part in parts.items():
            part.copy_(unpack(sums[peer], part))
        self.traffic.reduced += size_of(tensor)

    def _exchange(self, going: dict[int, Packed], coming: dict[int, Tensor]) -> dict[int, Packed]:
        """Send each peer its packet; return the packets that arrive, which have the sizes of `coming` packed."""
        packets = {
            peer: (
                like.new_empty(len(like), dtype=torch.int8),
                like.new_empty(-(-len(like) // BLOCK), dtype=torch.float32),
            )
            for peer, like in coming.items()
        }
        self._links.exchange(
            send=[(half, peer) for peer, packed in going.items() for half in packed],
            receive=[(half, peer) for peer, packed in packets.items() for half in packed],
        )
        return packets


def pack(tensor: Tensor) -> Packed:
    """Round each number to a 127th of the largest of its block."""
    blocks = torch.nn.functional.pad(tensor.float(), (0, -len(tensor) % BLOCK)).view(-1, BLOCK)
    scales = blocks.abs().amax(dim=1) / LARGEST
    divisors = torch.where(scales == 0, 1.0, scales)
    return (blocks / divisors[:, None]).round_().to(torch.int8).flatten()[: len(tensor)].contiguous(), scales


def unpack(packed: Packed, like: Tensor) -> Tensor:
    """Return the numbers, in the dtype of `like`."""
    numbers, scales = packed
    blocks = torch.nn.functional.pad(numbers.float(), (0, -len(numbers) % BLOCK)).view(-1, BLOCK)
    return (blocks * scales[:, None]).flatten()[: len(numbers)].to(like.dtype)
