"""The ranks that write one checkpoint together: who writes which tensor, and what they tell one another.

Used by `save.py`. `collect` is a collective of the main thread; the rest runs in the background thread, over the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor
from trainmaster.wire import codec

from trainmaster_trainer.checkpoint import pieces
from trainmaster_trainer.checkpoint.pieces import Holding
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.group import Group

PEERS_TIMEOUT = timedelta(minutes=30)


class Writers:
    """A rank among those that write one folder together."""

    def __init__(self, group: Group, alone: bool) -> None:
        self._group = group
        self._holdings: tuple[list[str], list[Holding]] = ([], [])  # of the last save, with their hashes
        self._everyone = not alone  # writes a part; else the first rank of each replica writes all
        self._alone = alone or group.world_size == 1
        self.rank = 0 if self._alone else group.rank
        self.count = 1 if self._alone else group.world_size
        # The thread's own connection: a blocking wait on a shared one would hold up the main thread.
        self._store = dist.HashStore() if self._alone else group.store.clone()  # type: ignore[attr-defined]
        self._store.set_timeout(PEERS_TIMEOUT)

    def collect(self, state: State, copy: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Copies of the tensors that this rank writes. Ranks that split a model send each other their parts."""
        if state.whole is None or self._group.world_size == 1:
            whole = {name: pieces.local(tensor) for name, tensor in state.tensors.items()}
            return copy({name: whole[name] for name in self._mine(whole)})
        writes = self._everyone or self._group.local_rank == 0
        holdings = self._tell(Holding.of(state.tensors, writes))
        return pieces.collect(state.tensors, holdings, self._wanted(holdings), self._group.rank)

    def _tell(self, own: Holding) -> list[Holding]:
        """What every rank holds. Little is said where nobody's holding has changed since the last save."""
        plain = codec.to_plain(own)
        hashes = self._group.gather(hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest())
        if hashes != self._holdings[0]:
            self._holdings = (hashes, [codec.from_plain(Holding, page) for page in self._group.gather(plain)])
        return self._holdings[1]

    def _wanted(self, holdings: list[Holding]) -> dict[str, list[int]]:
        """Which ranks write each tensor: one of its holders, or the first of each replica."""
        if self._everyone:
            owners = divide([{name: held.size for name, held in holding.tensors.items()} for holding in holdings])
            return {name: [owner] for name, owner in owners.items()}
        writers = [rank for rank, holding in enumerate(holdings) if holding.writes]
        return {name: writers for holding in holdings for name in holding.tensors}

    def _mine(self, tensors: dict[str, Tensor]) -> list[str]:
        sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in sorted(tensors.items())}
        if self._alone:
            return list(sizes)
        text = json.dumps(sizes)
        digests = self._group.gather(hashlib.sha256(text.encode()).hexdigest())
        # Replicas mostly have the same and need not tell each other what.
        same = len(set(digests)) == 1
        holdings = [sizes] * self.count if same else self._group.gather(sizes)
        return [name for name, owner in divide(holdings).items() if owner == self.rank]

    def report(self, step: int, report: dict[str, Any]) -> None:
        """Phase one: what this rank wrote."""
        self._store.set(f"checkpoint/{step}/{self.rank}", json.dumps(report))

    def reports(self, step: int) -> list[dict[str, Any]]:
        """What all ranks wrote, when all have."""
        keys = [f"checkpoint/{step}/{rank}" for rank in range(self.count)]
        found = [json.loads(self._store.get(key)) for key in keys]
        for key in keys:
            self._store.delete_key(key)  # the store lives as long as the attempt
        return found

    def publish(self, step: int, problem: str) -> None:
        """Phase two: tell all ranks how it went."""
        self._store.set(f"checkpoint/{step}/problem", json.dumps(problem))

    def outcome(self, step: int) -> str:
        """How it went, when that is known."""
        return str(json.loads(self._store.get(f"checkpoint/{step}/problem")))


def divide(holdings: list[dict[str, int]]) -> dict[str, int]:
    """Who writes each tensor: the biggest first, to the rank that has it and the least to write so far."""
    holders: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for rank, holding in enumerate(holdings):
        for name, size in holding.items():
            holders.setdefault(name, []).append(rank)
            sizes[name] = size
    load = [0] * len(holdings)
    owners = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        owner = min(holders[name], key=lambda rank: (load[rank], rank))
        owners[name] = owner
        load[owner] += sizes[name]
    return owners
