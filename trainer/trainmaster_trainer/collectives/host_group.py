"""HostGroup: a process group of torch's whose ranks are on one host and exchange through its memory.

For code that calls torch's collectives and is not ours to change: DTensor, which adds up and gathers activations in
every layer. What is asked for most goes through slots (`shared.py`, `shards.py`), all else to the gloo group inside.
Made by torch itself, where a group is asked for by the name of this backend (`axes.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions
from torch.distributed.distributed_c10d import Backend, Store
from typing_extensions import override

from trainmaster_trainer.collectives.shards import SharedShards
from trainmaster_trainer.collectives.shared import SharedMemory
from trainmaster_trainer.collectives.slots import Slots, share_slots
from trainmaster_trainer.group import Group

BACKEND = "trainmaster"
_CPU = torch.device("cpu")


class HostGroup(dist.ProcessGroup):
    """Ranks that share slots."""

    def __init__(self, gloo: Any, slots: Slots) -> None:
        super().__init__(gloo.rank(), gloo.size())
        self._register_backend(_CPU, dist.ProcessGroup.BackendType.GLOO, gloo)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._gloo = gloo
        self._memory, self._shards = SharedMemory(slots), SharedShards(slots)

    # Names and arguments from here on are torch's.

    def getBackendName(self) -> str:  # noqa: N802
        """As it was registered."""
        return BACKEND

    @override
    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        options = opts or dist.AllreduceOptions()
        if options.reduceOp != dist.ReduceOp.SUM or not all(map(_fits, tensors)):
            return self._gloo.allreduce(tensors, options)
        for tensor in tensors:
            self._memory.sum(tensor)
        return _Done(tensors)

    @override
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        if not (_fits(output) and _fits(input)):
            return self._gloo.all_gather_single(output, input, opts or AllgatherOptions())
        self._shards.gather(output, input)
        return _Done([output])

    @override
    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return [self.all_gather_single(*one, opts) for one in zip(outputs, inputs, strict=True)][-1]

    @override
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        options = opts or dist.ReduceScatterOptions()
        if options.reduceOp != dist.ReduceOp.SUM or not (_fits(output) and _fits(input)):
            return self._gloo.reduce_scatter_single(output, input, options)
        self._shards.scatter(output, input)
        return _Done([output])

    @override
    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return [self.reduce_scatter_single(*one, opts) for one in zip(outputs, inputs, strict=True)][-1]


def _handed_on(name: str) -> Callable[..., Any]:
    def call(self: HostGroup, *arguments: Any, **named: Any) -> Any:
        return getattr(self._gloo, name)(*arguments, **named)

    return call


# One by one, because the base class's own way to its backends keeps Python's lock while it waits for a lock of gloo's,
# whose threads want Python's to let go of a tensor (torch 2.15; seen as a hang in a broadcast).
for _name in (
    *("all_to_all_single", "allgather", "allgather_coalesced", "allreduce_coalesced", "alltoall", "barrier"),
    *("broadcast", "gather", "recv", "recv_anysource", "reduce", "reduce_scatter", "scatter", "send"),
):
    setattr(HostGroup, _name, _handed_on(_name))


class _Done(dist.Work):
    """There is nothing to wait for."""

    def __init__(self, result: list[Tensor]) -> None:
        super().__init__()
        self._future: Any = torch.futures.Future()
        self._future.set_result(result)

    @override
    def wait(self, timeout: Any = None) -> bool:
        return True

    @override
    def get_future(self) -> Any:
        return self._future


def _fits(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and tensor.is_floating_point() and tensor.numel() > 0


def offer(group: Group) -> str | None:
    """The backend's name, if ranks of this group may exchange through memory; from then on torch knows it."""
    if group.device != _CPU or not group.shared_memory:
        return None
    if not hasattr(Backend, BACKEND.upper()):
        Backend.register_backend(BACKEND, _create, devices=["cpu"])
    return BACKEND


def _create(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """The group of those who share memory; gloo's, for all of them, where one of them cannot."""
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    among = Group(rank, size, rank, size, _CPU, store)
    slots = share_slots(among, "slots", range(size)) if size > 1 else None
    return HostGroup(gloo, slots) if slots else gloo
