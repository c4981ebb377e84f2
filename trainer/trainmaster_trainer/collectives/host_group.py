"""HostGroup is a process group for torch whose ranks add up and gather through their host's memory.

It serves DTensor, which exchanges activations in every layer. Its most frequent calls go through slots (`shared.py`,
`shards.py`), all others to gloo (`over_gloo.py`).
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions
from typing_extensions import override

from trainmaster_trainer.collectives import over_gloo
from trainmaster_trainer.collectives.memory_slots import Slots, share_slots
from trainmaster_trainer.collectives.over_gloo import FinishedWork, OverGloo
from trainmaster_trainer.collectives.shards import SharedShards
from trainmaster_trainer.collectives.shared import SharedMemory
from trainmaster_trainer.group import Group


class HostGroup(OverGloo):
    """HostGroup is a process group of ranks that share slots."""

    backend = "trainmaster"

    def __init__(self, gloo: Any, slots: Slots) -> None:
        super().__init__(gloo)
        self._memory, self._shards = SharedMemory(slots), SharedShards(slots)

    # Names and arguments from here on are torch's.

    @override
    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        options = opts or dist.AllreduceOptions()
        if options.reduceOp != dist.ReduceOp.SUM or not all(map(_fits, tensors)):
            return self._gloo.allreduce(tensors, options)
        for tensor in tensors:
            self._memory.sum(tensor)
        return FinishedWork(tensors)

    @override
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        if not (_fits(output) and _fits(input)):
            return self._gloo.all_gather_single(output, input, opts or AllgatherOptions())
        self._shards.gather(output, input)
        return FinishedWork([output])

    @override
    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return [self.all_gather_single(*one, opts) for one in zip(outputs, inputs, strict=True)][-1]

    @override
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        options = opts or dist.ReduceScatterOptions()
        if options.reduceOp != dist.ReduceOp.SUM or not (_fits(output) and _fits(input)):
            return self._gloo.reduce_scatter_single(output, input, options)
        self._shards.scatter(output, input)
        return FinishedWork([output])

    @override
    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return [self.reduce_scatter_single(*one, opts) for one in zip(outputs, inputs, strict=True)][-1]


def _fits(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and tensor.is_floating_point() and tensor.numel() > 0


def offer(group: Group) -> str | None:
    """Return the backend's name, if ranks of this group may exchange through memory; else None."""
    return over_gloo.offer(HostGroup.backend, group, _create)


def _create(among: Group, gloo: Any) -> Any:
    """Return the group of the ranks that share memory; on all of them gloo's group, where one of them cannot."""
    slots = share_slots(among, "slots", range(among.world_size))
    return HostGroup(gloo, slots) if slots else gloo
