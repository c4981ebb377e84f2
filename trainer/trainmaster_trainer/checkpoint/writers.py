"""Writers are the ranks that write one checkpoint together: they decide which rank writes which tensor, and report.

`collect` is a collective of the main thread; the rest runs in the background thread, over the store.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store
from trainmaster.wire import codec

from trainmaster_trainer.checkpoint import pieces
from trainmaster_trainer.checkpoint.pieces import HeldTensor, Holding, piece_of
from trainmaster_trainer.checkpoint.state import State, dtype_name
from trainmaster_trainer.group import Group

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
_TRIES = 5  # of one call, each over a connection of its own
OUTCOME = "outcome"  # what went wrong, or "", and whether it is that the state itself is not finite
_SIGN = "checkpoint/alive/{rank}"
_LOOK = timedelta(seconds=10)  # so long a rank waits for another one's word before it looks whether that one lives
_IDLE_SECONDS = 60.0  # between two saves, after which their connection is made anew
_SIGN_SECONDS = 5.0  # between two signs of life
_SILENCE_SECONDS = 300.0  # without any: it is dead, or of no use. Storage that is slow stops no sign


class WriterLostError(Exception):
    """Another rank of this save gives no sign of life any more."""


class Writers:
    """Writers is a rank among those that write one folder together."""

    def __init__(self, group: Group, alone: bool) -> None:
        self._group = group
        self._holdings: tuple[list[str], list[Holding]] = ([], [])  # of the last save, with their hashes
        self._everyone = not alone  # writes a part; else the first rank of each replica writes all
        self._alone = alone or group.world_size == 1
        self.rank = 0 if self._alone else group.rank
        self.count = 1 if self._alone else group.world_size
        self._store: Store = dist.HashStore()  # type: ignore[attr-defined]
        self._connected = self._alone  # else `_call` does it
        self._ended = 0.0  # when the last save was over (time.monotonic)
        self.allowed: dict[str, int] = {}  # what the tensors of the last save may hold, see `soundness.py`
        self._number = 0  # of the save, the same on all ranks: one that is tried again has keys of its own

    def collect(self, state: State, copy: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return copies of the tensors that this rank writes.

        Ranks that split a model send each other their parts. Where each replica has a folder of its own, they also send
        what only one of them has: a folder that lacks it would be of no use when the others' are lost.
        """
        self.allowed = dict(state.allowed)
        if state.whole is None or self._group.world_size == 1:
            whole = {name: pieces.local(tensor) for name, tensor in state.tensors.items()}
            if state.own is not None and not self._everyone and self._group.world_size > 1:
                whole |= self._collect({name: whole[name] for name in state.own})
            sizes = {name: tensor.nbytes for name, tensor in sorted(whole.items())}
            mine = list(sizes)
            if not self._alone:
                digests = self._group.gather(hashlib.sha256(json.dumps(sizes).encode()).hexdigest())
                # Replicas mostly have the same and need not tell each other what.
                same = len(set(digests)) == 1
                owners = divide([sizes] * self.count if same else self._group.gather(sizes))
                mine = [name for name, owner in owners.items() if owner == self.rank]
            return copy({name: whole[name] for name in mine})
        return self._collect(state.tensors)

    def _collect(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors that this rank writes, out of the parts that all ranks hold."""
        held = {
            name: HeldTensor(dtype_name(one.dtype), tuple(one.shape), piece_of(one))
            for name, one in sorted(tensors.items())
        }
        own = codec.to_plain(Holding(self._everyone or self._group.local_rank == 0, held, self.allowed))
        # Only hashes are exchanged if no holding has changed since the last save.
        hashes = self._group.gather(hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest())
        if hashes != self._holdings[0]:
            self._holdings = (hashes, [codec.from_plain(Holding, page) for page in self._group.gather(own)])
        holdings = self._holdings[1]
        self.allowed = {name: worst for holding in holdings for name, worst in holding.allowed.items()}
        if self._everyone:  # one of its holders writes each tensor
            sizes = [
                {
                    name: math.prod(one.whole) * getattr(torch, one.dtype).itemsize
                    for name, one in holding.tensors.items()
                }
                for holding in holdings
            ]
            wanted = {name: [owner] for name, owner in divide(sizes).items()}
        else:  # the first rank of each replica writes all
            writers = [rank for rank, holding in enumerate(holdings) if holding.writes]
            wanted = {name: writers for holding in holdings for name in holding.tensors}
        return pieces.collect(tensors, holdings, wanted, self._group.rank, self._group.processes)

    @contextmanager
    def one_save(self) -> Iterator[None]:
        """Begin a save, and give signs of life while this rank works on it, however long its storage takes."""
        self._number += 1
        if self._alone:
            yield
            return
        # A connection that was idle for long may be lost without a word. A new one for each save would cost, as torch
        # asks the name server for the name of each address that it connects to (docs/decisions/0219).
        self._connected &= time.monotonic() - self._ended < _IDLE_SECONDS
        over = threading.Event()
        thread = threading.Thread(target=self._give_signs, args=[over], name="checkpoint-alive", daemon=True)
        with suppress(RuntimeError):  # there can be no more threads; others' patience is long
            thread.start()
        try:
            yield
        finally:
            over.set()
            self._ended = time.monotonic()

    def _give_signs(self, over: threading.Event) -> None:
        """Over a connection of its own. A sign that cannot be given is missed by others, and that is all."""
        key = _SIGN.format(rank=self.rank)
        store: Store | None = None
        with suppress(dist.DistError):
            while not over.wait(_SIGN_SECONDS):
                store = store or self._group.store.clone()
                store.add(key, 1)

    def reports(self) -> list[dict[str, Any]]:
        """Wait for the reports of all ranks, and return them."""
        found = [self.get(rank, rank) for rank in range(self.count)]
        # Deleted, as the store lives as long as the attempt.
        self._call(lambda store: [store.delete_key(self._key(rank)) for rank in range(self.count)])
        return found

    def _key(self, name: object) -> str:
        return f"checkpoint/{self._number}/{name}"

    def get(self, name: object, rank: int) -> Any:
        """Wait for what another rank says under this name, for as long as that one lives.

        Raises:
            WriterLostError: it does not.
        """
        key, signs, since = self._key(name), -1, time.monotonic()
        while True:
            with suppress(dist.DistStoreError):  # it has not come in this time
                self._call(lambda store: store.wait([key], _LOOK))
                break
            if (now := self._call(lambda store: store.add(_SIGN.format(rank=rank), 0))) != signs:
                signs, since = now, time.monotonic()
            elif time.monotonic() - since > _SILENCE_SECONDS:
                raise WriterLostError(f"rank {rank} has given no sign of life for {_SILENCE_SECONDS:.0f} s")
        return json.loads(self._call(lambda store: store.get(key)))

    def put(self, name: object, value: Any) -> None:
        """Tell the others: in phase one under this rank's number what it wrote, in phase two how it went (OUTCOME)."""
        key = self._key(name)

        def put(store: Store) -> None:
            store.set(key, json.dumps(value))
            store.check([key])  # asks for an answer: `set` into a connection that is lost says nothing

        self._call(put)

    def _call(self, ask: Callable[[Store], Answer]) -> Answer:
        """Use the saves' own connection, and a new one when it is lost: torch does not restore a connection.

        The main thread's connection is not used: a wait that blocks would hold that thread up.
        """
        tries = 0
        while True:
            try:
                if not self._connected:
                    self._store = self._group.store.clone()
                    self._store.set_timeout(self._group.patience)
                    self._connected = True
                return ask(self._store)
            except dist.DistNetworkError as error:
                tries += 1
                if tries == _TRIES:
                    raise
                log.warning("The connection to the ranks' store is lost: %s", str(error).partition("\n")[0])
                self._connected = False


def divide(holdings: list[dict[str, int]]) -> dict[str, int]:
    """Return the rank that writes each tensor: the biggest first, by the holder with the least to write so far."""
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
