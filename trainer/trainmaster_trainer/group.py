"""Group is the ranks of one attempt, with the few things that the trainer itself has to agree on with them.

The strategies use torch.distributed directly, on the default process group that `join` opens. Small values travel as
JSON in byte tensors: torch's own object collectives would pickle.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import GroupMember, PrefixStore, ProcessGroup, Store, default_pg_timeout
from torch.distributed.rendezvous import rendezvous

from trainmaster_trainer import xla
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.settings import Settings

RESULT_TIMEOUT = timedelta(days=1)
_LENGTH = 8  # bytes that say how long a text is
_PAGE = 1024  # bytes of a text that travel with its length; the rest, if any, in a second round


@dataclass(frozen=True)
class Group:
    """Group is a rank among its peers. `store` is a key-value store that all of them reach, fresh for this try."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device
    store: Store
    shared_memory: bool = True  # may ranks of one host exchange tensors through it?
    patience: timedelta = default_pg_timeout  # how long a rank waits for another one before it gives up
    processes: ProcessGroup | None = None  # for CPU tensors; None: the default group

    @property
    def is_first(self) -> bool:
        """Return whether this is rank 0, which writes what is written once."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add up a CPU tensor over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(values, group=self.processes)
        return values

    def all(self, holds: bool) -> bool:
        """Return whether something holds on all ranks."""
        return not self.sum(torch.tensor([int(not holds)]))[0]

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON values of all ranks, in the order of ranks, on every rank."""
        data = json.dumps(value).encode()
        if self.world_size == 1:
            return [json.loads(data)]
        room = _PAGE
        while True:
            pages = [torch.empty(_LENGTH + room, dtype=torch.uint8) for _ in range(self.world_size)]
            dist.all_gather(pages, _to_page(data, room), group=self.processes)
            texts = [page.numpy().tobytes() for page in pages]
            lengths = [int.from_bytes(text[:_LENGTH], "little") for text in texts]
            if max(lengths) <= room:
                return [
                    json.loads(text[_LENGTH : _LENGTH + length]) for text, length in zip(texts, lengths, strict=True)
                ]
            room = max(lengths)

    def gather_apart(self, name: str, value: Any, patience: timedelta) -> list[Any]:
        """Return the JSON values of this name of all ranks without a collective, in which some rank may still be.

        Raises:
            RuntimeError: some rank has not said it in time.
        """
        keys = [f"{name}/{rank}" for rank in range(self.world_size)]
        self.store.set(keys[self.rank], json.dumps(value))
        self.store.wait(keys, patience)
        return [json.loads(self.store.get(key)) for key in keys]

    def broadcast(self, value: Any, source: int = 0) -> Any:
        """Return the JSON value of rank `source` on every rank. The other ranks' own values are ignored."""
        data = json.dumps(value).encode()
        if self.world_size == 1:
            return json.loads(data)
        room = _PAGE
        while True:
            page = _to_page(data, room)
            dist.broadcast(page, source, group=self.processes)
            text = page.numpy().tobytes()
            length = int.from_bytes(text[:_LENGTH], "little")
            if length <= room:
                return json.loads(text[_LENGTH : _LENGTH + length])
            room = length

    def broadcast_tensor(self, tensor: Tensor, source: int) -> None:
        """Replace a contiguous CPU tensor by that of rank `source`, in place."""
        if self.world_size > 1:
            # As bytes: gloo does not know every dtype that a checkpoint does.
            dist.broadcast(tensor.reshape(-1).view(torch.uint8), source, group=self.processes)

    def share_result(self, value: dict[str, float], name: str = "result") -> dict[str, float]:
        """Return rank 0's value of this name on every rank. No collective times out while rank 0 works on it."""
        if self.world_size == 1:
            return value
        store = self.store.clone()
        store.set_timeout(RESULT_TIMEOUT)
        if self.is_first:
            store.set(name, json.dumps(value))
        result: dict[str, float] = json.loads(store.get(name))
        dist.barrier()  # no rank leaves, and takes the store along, before all have read it
        if self.is_first:
            store.delete_key(name)
        return result


def _to_page(data: bytes, room: int) -> Tensor:
    """Return the length, and as much of the text as there is room for."""
    page = len(data).to_bytes(_LENGTH, "little") + data[:room].ljust(room, b"\0")
    return torch.frombuffer(bytearray(page), dtype=torch.uint8)


def choose_device(settings: Settings) -> torch.device:
    """Return the rank's GPU if there are any, else the CPU: `is_nccl_available` is true also without a GPU."""
    if settings.plan.accelerator == xla.ACCELERATOR:
        return xla.open_device()
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if settings.local_rank >= torch.cuda.device_count():
        raise ConfigurationError(
            f"spec.workers.gpus: {settings.local_world_size} ranks on a node with {torch.cuda.device_count()} visible "
            "GPUs; each rank needs one of its own. Lower it to what a node has."
        )
    return torch.device("cuda", settings.local_rank)


def set_timeout(patience: timedelta, peers: dist.ProcessGroup) -> None:
    """Set how long calls of this process group wait for the others. torch before 2.15 has no public name for it."""
    change: Any = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout  # noqa: SLF001
    change(patience, peers)


@contextmanager
def join(settings: Settings) -> Iterator[Group]:
    """Open the default process group: gloo for CPU tensors, and NCCL beside it where there is a GPU."""
    device = choose_device(settings)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = _store(settings)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    # The agent sees hangs sooner, and knows a rank that loads or saves for an hour from one that hangs.
    patience = RESULT_TIMEOUT if settings.progress_file else default_pg_timeout
    store.set_timeout(patience)
    dist.init_process_group(backend, store=store, rank=settings.rank, world_size=settings.world_size, timeout=patience)
    own = PrefixStore(f"trainmaster/{settings.run_key}", store)
    yield Group(
        settings.rank,
        settings.world_size,
        settings.local_rank,
        settings.local_world_size,
        device,
        own,
        settings.shared_memory,
        patience,
    )
    # Not after an error: NCCL would wait for peers that may be gone, and the end of the process closes it all.
    dist.destroy_process_group()


@contextmanager
def alone() -> Iterator[None]:
    """Make torch's default process group one of this rank only, for the user's code that other ranks do not run.

    Metrics add themselves up over all ranks where there is a group, and would wait for ranks that never come.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        yield
        return
    whole = GroupMember.WORLD
    try:
        single = dist.new_group([dist.get_rank()], backend=dist.get_backend_config(), use_local_synchronization=True)
    except TypeError:  # XLA's backend cannot make a group without all ranks
        single = None
    if single is None:
        yield
        return
    GroupMember.WORLD = single  # type: ignore[assignment]
    try:
        yield
    finally:
        GroupMember.WORLD = whole
        dist.destroy_process_group(single)


def _store(settings: Settings) -> Store:
    """Return the store that the agent (or torchrun, or rank 0) serves; for one rank by hand, one in this process."""
    if settings.world_size == 1 and "MASTER_ADDR" not in os.environ:
        return dist.HashStore()  # type: ignore[attr-defined]
    store: Store
    store, _, _ = next(rendezvous("env://", rank=settings.rank, world_size=settings.world_size))
    return store
