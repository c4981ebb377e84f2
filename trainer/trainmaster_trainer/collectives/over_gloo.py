"""OverGloo is a process group for torch that hands all calls on to gloo, but for what a derived class does itself.

It serves code of torch that calls collectives: DTensor (`host_group.py`) and the schedules of pipelines
(`stage_group.py`). Such a group is made by torch itself, where it is asked for by the name of its backend.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Backend, Store
from typing_extensions import override

from trainmaster_trainer.group import Group

CPU = torch.device("cpu")
Creator = Callable[[Group, Any], dist.ProcessGroup]  # of the ranks of a group, and their gloo


class OverGloo(dist.ProcessGroup):
    """OverGloo is gloo's process group under a name of its own. Names and arguments of methods are torch's."""

    backend: str

    def __init__(self, gloo: Any) -> None:
        super().__init__(gloo.rank(), gloo.size())
        self._register_backend(CPU, dist.ProcessGroup.BackendType.GLOO, gloo)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._gloo = gloo

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name under which the backend was registered."""
        return self.backend


def _handed_on(name: str) -> Callable[..., Any]:
    def call(self: OverGloo, *arguments: Any, **named: Any) -> Any:
        return getattr(self._gloo, name)(*arguments, **named)

    return call


# One by one, because the base class's own way to its backends keeps Python's lock while it waits for a lock of gloo's,
# whose threads want Python's to let go of a tensor (torch 2.15; seen as a hang in a broadcast).
for _name in (
    *("all_gather_single", "all_gather_single_coalesced", "all_to_all_single", "allgather", "allgather_coalesced"),
    *("allreduce", "allreduce_coalesced", "alltoall", "barrier", "broadcast", "gather", "recv", "recv_anysource"),
    *("reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced", "scatter", "send"),
):
    setattr(OverGloo, _name, _handed_on(_name))


class FinishedWork(dist.Work):
    """FinishedWork is work that is finished already, so that there is nothing to wait for."""

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


def offer(backend: str, group: Group, create: Creator) -> str | None:
    """Register the backend and return its name, if ranks of this group may exchange through memory; else None."""
    if group.device != CPU or not group.shared_memory:
        return None
    if not hasattr(Backend, backend.upper()):

        def make(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
            gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
            among = Group(rank, size, rank, size, CPU, store, patience=timeout)
            return create(among, gloo) if size > 1 else gloo

        Backend.register_backend(backend, make, devices=["cpu"])
    return backend
