"""Choose the reducer that a job gets for the algorithm in its YAML. All ranks call it.

Native means: NCCL between GPUs; for CPUs, shared memory where all ranks are on one host, and gloo where they are not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.cast import Cast
from trainmaster_trainer.collectives.driver import Driver
from trainmaster_trainer.collectives.funnel import Funnel
from trainmaster_trainer.collectives.hierarchical import Hierarchical, LeaderLink
from trainmaster_trainer.collectives.int8 import Int8
from trainmaster_trainer.collectives.memory_slots import Slots, share_slots
from trainmaster_trainer.collectives.native import Native
from trainmaster_trainer.collectives.reducer import Reducer, size_of
from trainmaster_trainer.collectives.ring import Ring
from trainmaster_trainer.collectives.shards import SharedShards
from trainmaster_trainer.collectives.shared import SharedMemory
from trainmaster_trainer.collectives.tensor_links import TensorLinks
from trainmaster_trainer.collectives.tree import Tree
from trainmaster_trainer.group import Group


def choose_reducer(algorithm: str, group: Group) -> Reducer | None:
    """Return the reducer of that name; None for one rank, or for what DDP does by itself."""
    return _MAKERS[algorithm](group) if group.world_size > 1 else None


def choose_counted(group: Group, compression: str) -> Reducer | None:
    """Return the fastest reducer that needs no DDP; None for one rank. It counts its bytes, but for NCCL's."""
    if group.world_size == 1:
        return None
    if compression == "INT8":
        return Int8(make_links(group), range(group.world_size), group.rank)
    reducer = _native(group) or (_ring(group) if group.device.type == "cpu" else Native())
    return Cast(reducer) if compression == "BF16" else reducer


def share_shards(group: Group, ranks: list[int]) -> SharedShards | None:
    """Return what exchanges shards among `ranks`, all of which call it; None where only torch's own way is possible."""
    slots = _share(group, f"shards-{ranks[0]}", ranks) if len(ranks) > 1 else None
    return SharedShards(slots) if slots else None


def _native(group: Group) -> Reducer | None:
    slots = _share(group, "native", list(range(group.world_size)))
    return SharedMemory(slots) if slots else None


def _ring(group: Group) -> Reducer:
    return Ring(make_links(group), range(group.world_size), group.rank)


def _driver(group: Group) -> Reducer:
    return Driver(make_links(group), range(group.world_size), group.rank)


def _tree(group: Group) -> Reducer:
    return Tree(make_links(group), range(group.world_size), group.rank)


def _one_device(group: Group) -> Reducer:
    slots = _share(group, "one-device", list(range(group.world_size)))
    return _Funnelled(Funnel(slots)) if slots else _driver(group)


def _hierarchical(group: Group) -> Reducer:
    leaders: list[int] = group.gather(group.rank - group.local_rank)
    leader = leaders[group.rank]
    mine = [rank for rank, other in enumerate(leaders) if other == leader]
    links = make_links(group)  # made by all ranks, even those that do not use them
    between = Ring(links, sorted(set(leaders)), group.rank) if group.rank == leader else None
    return Hierarchical(_inside(group, mine), between)


def _inside(group: Group, ranks: list[int]) -> LeaderLink | None:
    links = make_links(group)
    if len(ranks) == 1:
        return None
    slots = _share(group, f"inside-{ranks[0]}", ranks)
    return Funnel(slots) if slots else Driver(links, ranks, group.rank)


class _Funnelled(Reducer):
    """_Funnelled is the all-reduce to the first device and back."""

    in_rank_order = True

    def __init__(self, funnel: Funnel) -> None:
        super().__init__()
        self.traffic = funnel.traffic
        self._funnel = funnel

    @override
    def sum(self, tensor: Tensor) -> None:
        self._funnel.reduce(tensor)
        self._funnel.broadcast(tensor)
        self.traffic.reduced += size_of(tensor)


def make_links(group: Group) -> TensorLinks:
    """Return links to all ranks, over a process group of their own. All ranks call it."""
    own = dist.new_group(timeout=group.patience)
    return TensorLinks(own if isinstance(own, dist.ProcessGroup) else None)


def _share(group: Group, name: str, ranks: list[int]) -> Slots | None:
    if group.device.type != "cpu" or not group.shared_memory:
        return None
    return share_slots(group, f"collectives/{name}", ranks)


_MAKERS: dict[str, Callable[[Group], Reducer | None]] = {
    "Native": _native,
    "Ring": _ring,
    "Hierarchical": _hierarchical,
    "Driver": _driver,
    "HierarchicalCopy": _tree,
    "OneDevice": _one_device,
}
