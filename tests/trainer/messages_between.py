"""What ranks do in `test_messages.py`: called in every rank of a group, answers as JSON."""

import os
import random
import signal
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from trainmaster_trainer.collectives.choose import make_links
from trainmaster_trainer.collectives.memory_slots import share_slots
from trainmaster_trainer.collectives.peer_memory import MemoryPeerLostError
from trainmaster_trainer.collectives.tensor_messages import ROOM, SLOTS, share_messages
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.axes import Axes

SHAPES = ((1,), (3, 5), (0,), (17, 1000), (ROOM // 4,), (ROOM // 4 + 1,))  # the last one is too large for a slot
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)


def stages(group: Group) -> Any:
    """The process group of a pipeline over all ranks."""
    return Axes(pipeline=group.world_size).mesh(group)["pipeline"].get_group()


def exchange(group: Group, count: int) -> dict[str, Any]:
    """All neighbours send one another many messages at once, and wait for them in an order of chance."""
    pipeline = stages(group)
    chance = random.Random(group.rank)  # noqa: S311 no secret
    works: list[Any] = []
    pairs: list[tuple[Tensor, Tensor]] = []
    for peer in (group.rank - 1, group.rank + 1):
        if 0 <= peer < group.world_size:
            sent = [content(group.rank, peer, number) for number in range(count)]
            expected = [content(peer, group.rank, number) for number in range(count)]
            came = [torch.empty_like(one) for one in expected]
            sends = [lambda one=one, peer=peer: dist.isend(one, group=pipeline, group_dst=peer) for one in sent]
            receives = [lambda one=one, peer=peer: dist.irecv(one, group=pipeline, group_src=peer) for one in came]
            works += [call() for call in interleaved(sends, receives, chance)]
            pairs += zip(came, expected, strict=True)
    chance.shuffle(works)
    for work in works:
        work.wait()
    return {"backend": dist.get_backend(pipeline), "wrong": sum(not torch.equal(*pair) for pair in pairs)}


def interleaved(some: list[Any], others: list[Any], chance: random.Random) -> list[Any]:
    """Each list in its order."""
    order = chance.sample([True] * len(some) + [False] * len(others), len(some) + len(others))
    return [(some if which else others).pop(0) for which in order]


def content(source: int, target: int, number: int) -> Tensor:
    """Of the `number`th message from one rank to another; both know it."""
    generator = torch.Generator().manual_seed(100_000 * source + 1000 * target + number)
    shape, dtype = SHAPES[number % len(SHAPES)], DTYPES[number % len(DTYPES)]
    return torch.randint(0, 100, shape, generator=generator).to(dtype)


def one_after_the_other(group: Group) -> int:
    """Blocking calls: numbers go up the stages and come back, each with more of them; how many were wrong."""
    pipeline, wrong = stages(group), 0
    first, last = group.rank == 0, group.rank == group.world_size - 1
    for size in range(1, 50):
        tensor = torch.full((size,), float(size))
        if not first:
            dist.recv(tensor.zero_(), group=pipeline, group_src=group.rank - 1)
        if not last:
            dist.send(tensor, group=pipeline, group_dst=group.rank + 1)
            dist.recv(tensor.zero_(), group=pipeline, group_src=group.rank + 1)
        if not first:
            dist.send(tensor, group=pipeline, group_dst=group.rank - 1)
        wrong += not torch.equal(tensor, torch.full((size,), float(size)))
    return wrong


def far_apart(group: Group) -> float:
    """Stages that are no neighbours can talk, too: the last one tells the first."""
    pipeline, tensor = stages(group), torch.full((5,), float(group.rank))
    if group.rank == group.world_size - 1:
        dist.send(tensor, group=pipeline, group_dst=0)
    if group.rank == 0:
        dist.recv(tensor, group=pipeline, group_src=group.world_size - 1)
    dist.barrier()
    return float(tensor[0])


def lose_a_stage(group: Group, direction: str) -> str:
    """Rank 1 dies while rank 0 waits to send or to receive; what that says."""
    pipeline = stages(group)
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(SLOTS + 1):
            if direction == "send":
                dist.send(torch.ones(3), group=pipeline, group_dst=1)
            else:
                dist.recv(torch.ones(3), group=pipeline, group_src=1)
    except MemoryPeerLostError as error:
        return str(error)
    return "nothing"


def patience(group: Group) -> dict[str, float]:
    """Seconds that this rank waits for another one, by what it waits in."""
    mesh = Axes(pipeline=2, tensor=group.world_size // 2).mesh(group)
    slots = share_slots(group, "slots", range(group.world_size))
    messages = share_messages(group)
    assert slots
    assert messages
    groups: dict[str, Any] = {name: mesh[name].get_group() for name in mesh.mesh_dim_names or ()}
    groups |= {"links": make_links(group)._group, "world": dist.group.WORLD}
    store: Any = group.store
    found = {name: one._get_backend(torch.device("cpu")).options._timeout for name, one in groups.items()}
    by_us = {"slots": slots._patience, "messages": messages._patience, "store": store.timeout}
    dist.barrier()  # who ends while another one still connects its groups breaks that off
    return {name: time.total_seconds() for name, time in {**found, **by_us}.items()}
