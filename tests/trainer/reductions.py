"""What ranks do in `test_collectives.py`: called in every rank of a group, answers as JSON."""

import hashlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional
from trainmaster_trainer.collectives import choose
from trainmaster_trainer.collectives.funnel import Funnel
from trainmaster_trainer.collectives.memory_slots import SemaphoreKind, share_slots
from trainmaster_trainer.collectives.native import Native
from trainmaster_trainer.collectives.peer_memory import MemoryPeerLostError
from trainmaster_trainer.collectives.reducer import Reducer
from trainmaster_trainer.collectives.shared import SharedMemory
from trainmaster_trainer.group import Group
from trainmaster_trainer.shared_memory.semaphores import SLICE_NANOSECONDS
from trainmaster_trainer.strategies.axes import Axes


def numbers(rank: int, size: int) -> Tensor:
    """Of very different magnitude, so that the order of a sum shows in its last bits."""
    generator = torch.Generator().manual_seed(1000 * size + rank)
    return torch.randn(size, generator=generator) * torch.randn(size, generator=generator).exp()


def make(group: Group, algorithm: str) -> Reducer:
    """The reducer, never None."""
    return choose.choose_reducer(algorithm, group) or Native()


def sums(group: Group, algorithm: str, sizes: list[int]) -> list[dict[str, Any]]:
    """Digest of the sum, its greatest difference from torch's, and the bytes that it took, for each size."""
    reducer = make(group, algorithm)
    answers = []
    for size in sizes:
        before = asdict(reducer.traffic)
        tensor, native = numbers(group.rank, size), numbers(group.rank, size)
        reducer.sum(tensor)
        dist.all_reduce(native)
        after = asdict(reducer.traffic)
        magnitude = sum(numbers(rank, size).abs() for rank in range(group.world_size))
        answers.append(
            {
                "kind": type(reducer).__name__,
                "sha256": digest(tensor),
                "difference": float(((tensor - native).abs() / magnitude).max()) if size else 0.0,
                "in_order": torch.equal(tensor, in_rank_order(group.world_size, size)),
                **{name: after[name] - before[name] for name in after},
            }
        )
    return answers


def means(group: Group, algorithm: str, sizes: list[int]) -> list[bool]:
    """Whether the mean is the sum, divided by the number of ranks afterwards: the same bits."""
    reducer = make(group, algorithm)
    found = []
    for size in sizes:
        mean, total = numbers(group.rank, size), numbers(group.rank, size)
        reducer.mean(mean, group.world_size)
        reducer.sum(total)
        found.append(torch.equal(mean, total / group.world_size))
    return found


def in_rank_order(world: int, size: int) -> Tensor:
    """((0 + 1) + 2) + ..."""
    total = numbers(0, size)
    for rank in range(1, world):
        total = total + numbers(rank, size)
    return total


def digest(tensor: Tensor) -> str:
    """Of all bytes."""
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def small_slots(group: Group, chunk: int, sizes: list[int]) -> list[str]:
    """Sums through slots of a few bytes: each goes round many times."""
    slots = share_slots(group, "small", list(range(group.world_size)), chunk)
    assert slots
    reducer = SharedMemory(slots)
    found = []
    for size in sizes:
        tensor = numbers(group.rank, size)
        reducer.sum(tensor)
        found.append("right" if torch.equal(tensor, in_rank_order(group.world_size, size)) else f"wrong: {size}")
    return found


def small_funnel(group: Group, chunk: int, sizes: list[int]) -> list[str]:
    """To the first rank and back, through the same small slots: nothing but they holds the writer back."""
    slots = share_slots(group, "small", list(range(group.world_size)), chunk)
    assert slots
    funnel = Funnel(slots)
    found = []
    for size in sizes:
        tensor = numbers(group.rank, size)
        funnel.reduce(tensor)
        funnel.broadcast(tensor)
        found.append("right" if torch.equal(tensor, in_rank_order(group.world_size, size)) else f"wrong: {size}")
    return found


def lose_a_peer(group: Group, last: int) -> dict[str, Any]:
    """The last rank dies in the middle; the others say what they saw, and how long it took."""
    reducer = make(group, "Native")
    tensor = torch.ones(1_000_000)
    reducer.sum(tensor)
    if group.rank == last:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        reducer.sum(tensor)
    except MemoryPeerLostError as error:
        answer = {"message": str(error), "seconds": time.monotonic() - begin}
    group.store.set(f"seen/{group.rank}", "")
    group.store.wait([f"seen/{rank}" for rank in range(group.world_size) if rank != last])
    return answer


def outlive_a_peer(group: Group) -> None:
    """Rank 0 ends with all that it has to do; rank 1 counts up for rank 2 only then."""
    slots = share_slots(group, "outlived", range(3))
    assert slots is not None
    if group.rank == 1:
        while slots._segments[0].owner_lives():
            time.sleep(0.01)
        time.sleep(4 * SLICE_NANOSECONDS / 1e9)
        slots.post(SemaphoreKind.FULL, [2])
    elif group.rank == 2:
        slots.wait(SemaphoreKind.FULL, [1])


def shards(group: Group, sizes: list[int], dtypes: list[str]) -> list[dict[str, bool]]:
    """Whether gathering and scattering through shared memory does what torch does; the sum in the order of ranks."""
    ranks = list(range(group.world_size))
    shared = choose.share_shards(group, ranks)
    assert shared is not None
    answers = []
    for size in sizes:
        for dtype in dtypes:
            kind = getattr(torch, dtype)
            shard = (100 * numbers(group.rank, size)).to(kind)
            gathered = torch.empty(group.world_size * size, dtype=kind)
            gathered[group.rank * size :][:size] = shard
            shared.gather(gathered, gathered[group.rank * size :][:size])  # in place, as torch does
            expected = torch.cat([(100 * numbers(rank, size)).to(kind) for rank in ranks])
            whole = [(100 * numbers(rank, group.world_size * size)).to(kind) for rank in ranks]
            part = torch.empty(size, dtype=kind)
            shared.scatter(part, whole[group.rank])
            mine = [one[group.rank * size :][:size] for one in whole]
            total = mine[0].clone()
            for one in mine[1:]:
                total += one
            answers.append({"gathered": torch.equal(gathered, expected), "scattered": torch.equal(part, total)})
    return answers


def host_group(group: Group, sizes: list[int], dtypes: list[str]) -> dict[str, Any]:
    """The backend of a mesh's tensor dimension, and where its answers differ from gloo's."""
    world = group.world_size
    mesh = Axes(tensor=world).mesh(group)
    own, gloo = mesh["tensor"].get_group(), dist.new_group()
    wrong = []
    for dtype in dtypes:
        for size in sizes:
            whole = torch.randint(-9, 9, (world * size,)).to(getattr(torch, dtype)) + group.rank
            for name, call in COLLECTIVES.items():
                ours, theirs = (call(whole.clone(), one) for one in (own, gloo))
                if not torch.equal(ours, theirs):
                    wrong.append(f"{name} of {size} {dtype}")
    dist.barrier(own)
    return {"backend": dist.get_backend(own), "wrong": wrong}


def _done(tensor: Tensor) -> Tensor:
    waited: Tensor = functional.wait_tensor(tensor)  # type: ignore[no-untyped-call]
    return waited


def _broadcast(tensor: Tensor, group: Any) -> Tensor:
    dist.broadcast(tensor, group=group, group_src=dist.get_world_size(group) - 1)
    return tensor


def _in_place(tensor: Tensor, group: Any) -> Tensor:
    dist.all_reduce(tensor, group=group)
    return tensor


# By torch's functional collectives, as DTensor does, where there is one.
COLLECTIVES: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "sum": lambda tensor, group: _done(functional.all_reduce(tensor, "sum", group)),
    "sum in place": _in_place,
    "sum of every other": lambda tensor, group: _done(functional.all_reduce(tensor[::2], "sum", group)),
    "most": lambda tensor, group: _done(functional.all_reduce(tensor, "max", group)),
    "gather": lambda tensor, group: _done(functional.all_gather_tensor(tensor, 0, group)),
    "scatter": lambda tensor, group: _done(functional.reduce_scatter_tensor(tensor, "sum", 0, group)),
    "broadcast": _broadcast,
}
