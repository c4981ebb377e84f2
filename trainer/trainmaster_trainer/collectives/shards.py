"""Gather shards and scatter sums between processes of one host, for torch's `fully_shard`.

It uses slots as `shared.py` does, chunk by chunk, with one wait each. To gather, each rank puts its shard there and
reads those of the others. To scatter, each rank puts there what the others are to add up, and adds up its own part, in
the order of ranks. gloo takes a round of messages for each (`make bench NAME=model_parallel` compares the two).

Its two callables are what `FSDPModule.set_custom_all_gather` and `set_custom_reduce_scatter` want (their `Comm`: memory
by `allocate`, then a call).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from trainmaster_trainer.collectives.memory_slots import SemaphoreKind, Slots, Stage
from trainmaster_trainer.collectives.shared import add_up

Span = tuple[int, int]  # of a chunk: its first element, and the one behind its last


class SharedShards:
    """SharedShards exchanges shards of ranks that share `slots`. All ranks call the same methods in the same order."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._place = slots.ranks.index(slots.rank)

    def gather(self, output: Tensor, shard: Tensor) -> None:
        """Write the shards of all ranks, one after the other, into `output`, of which `shard` may be a part."""
        slots, own = self._slots, shard.view(-1)
        rows = output.view(len(slots.ranks), -1)

        def put(number: int, span: Span) -> None:
            first, end = span
            slots.put(number, own[first:end], slots.peers)

        def read(number: int, span: Span) -> None:
            first, end = span
            slots.wait(SemaphoreKind.FULL, slots.peers)
            for row, rank in zip(rows, slots.ranks, strict=True):
                part = row[first:end]
                part.copy_(own[first:end] if rank == slots.rank else slots.slot(rank, number, part))
            slots.post(SemaphoreKind.FREE, slots.peers)

        self._pass_through(len(own), slots.layout.chunk // own.element_size(), put, read)

    def scatter(self, output: Tensor, parts: Tensor, divisor: int = 1) -> None:
        """Write the sum of all ranks' parts for this rank, divided by `divisor`, into `output`."""
        slots, total = self._slots, output.view(-1)
        rows = parts.view(len(slots.ranks), -1)

        def put(number: int, span: Span) -> None:
            first, end = span
            slots.wait(SemaphoreKind.FREE, slots.peers)
            area = self._rows(slots.rank, number, parts, end - first)
            for place, row in enumerate(rows):
                if place != self._place:
                    area[place].copy_(row[first:end])
            slots.post(SemaphoreKind.FULL, slots.peers)

        def read(number: int, span: Span) -> None:
            first, end = span
            slots.wait(SemaphoreKind.FULL, slots.peers)
            theirs = [self._rows(rank, number, parts, end - first)[self._place] for rank in slots.ranks]
            theirs[self._place] = rows[self._place][first:end]
            add_up(theirs, total[first:end])
            if divisor > 1:
                total[first:end].div_(divisor)
            slots.post(SemaphoreKind.FREE, slots.peers)

        self._pass_through(len(total), slots.layout.chunk // parts.element_size() // len(rows), put, read)

    def _rows(self, owner: int, number: int, like: Tensor, length: int) -> Tensor:
        """Return a slot as a matrix with a row for each rank."""
        ranks = len(self._slots.ranks)
        return self._slots.slot(owner, number, like.view(-1)[: ranks * length]).view(ranks, length)

    def _pass_through(self, length: int, most: int, put: Stage[Span], read: Stage[Span]) -> None:
        spans = [(first, min(first + most, length)) for first in range(0, length, most)]
        self._slots.pass_through(spans, (put, read))


def exchange_through(shards: SharedShards, model: nn.Module) -> None:
    """Let every part of a model that is spread over these ranks gather and scatter through `shards`."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(_Gather(shards))  # type: ignore[arg-type]  # its base class has no public name
            module.set_custom_reduce_scatter(_Scatter(shards))  # type: ignore[arg-type]


class _Allocating:
    """_Allocating takes ordinary memory."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a tensor without content."""
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Allocating):
    def __init__(self, shards: SharedShards) -> None:
        self._shards = shards

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,  # noqa: ARG002 (torch names them all)
        async_op: bool = False,  # noqa: ARG002 (likewise)
    ) -> None:
        """Gather. All is done when this returns: there is nothing to wait for, even with `async_op`."""
        self._shards.gather(output_tensor, input_tensor)


class _Scatter(_Allocating):
    def __init__(self, shards: SharedShards) -> None:
        self._shards = shards

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,  # noqa: ARG002 (torch names them all)
    ) -> None:
        """Scatter. All is done when this returns, even with `async_op`.

        Raises:
            NotImplementedError: `op` is another than SUM or AVG, which is all that torch asks for unless told to.
        """
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise NotImplementedError(f"a scatter with {op}")
        self._shards.scatter(output_tensor, input_tensor, group.size() if op == dist.ReduceOp.AVG else 1)
