"""Let the next replica keep what one rank alone has of a state, where all else is the same on all ranks.

The ranks of a script have the same model, and each its own random numbers, loaders and running means (`State.own`).
A rank gives these to the rank of the same local number in the next replica, and adds those of the one before to the
snapshot that it has taken after the same step. A replica that is lost goes on from there: its ranks take the model from
any other rank, and what was theirs from the neighbour. What two neighbours that are lost together had is gone.

Both wait for other ranks, so an exchange may come more seldom than a snapshot (`intervals.py`). The snapshot of the
newest one is kept until there is a newer one on all ranks.

    8 bytes      how long the text is
    JSON         [[name, bytes], ...]
    bytes        of the tensors, one after the other
    zeros        up to a length that seldom changes, as a slot has room for one length
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from trainmaster.wire import bounded_json

from trainmaster_trainer.checkpoint.of_scripts import OWN
from trainmaster_trainer.checkpoint.passing import Passing
from trainmaster_trainer.checkpoint.slot import SlotError
from trainmaster_trainer.checkpoint.soundness import Allowed, complaint
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group

NEIGHBOUR = "neighbour"  # among the tensors of a snapshot
_LENGTH = 8
_ROOM = 4096  # bytes, of which a length is a multiple
_MOST_NAMES = 200_000


class Neighbours(Passing):
    """Neighbours exchanges what each rank alone has. All ranks call it after the same steps."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._room = 0
        self._began = 0.0
        self.given = torch.empty(0, dtype=torch.uint8)  # what came last

    def exchange(self, step: int, state: State) -> Tensor:
        """Give this rank's own part to the next replica. Return that of the one before.

        Raises:
            ConfigurationError: that one is at another step.
        """
        self._began = time.perf_counter()
        mine = self._packed(state)
        told = torch.tensor([mine.numel(), step])
        sent: list[Any] = [dist.isend(one, self._after, self._group.processes) for one in (told, mine)]
        theirs = torch.zeros(2, dtype=torch.int64)
        dist.recv(theirs, self.before, self._group.processes)
        length, other = theirs.tolist()
        if other != step:
            raise ConfigurationError(
                f"session.state: rank {self._group.rank} calls step({step}) while rank {self.before} calls "
                f"step({other}). Call it on every rank after each step, with the same number."
            )
        self.given = torch.empty(length, dtype=torch.uint8)
        dist.recv(self.given, self.before, self._group.processes)
        for one in sent:
            one.wait()
        return self.given

    def _packed(self, state: State) -> Tensor:
        """Return this rank's own part, as the neighbour keeps it."""
        own = {name: state.tensors[name] for name in sorted(state.own or ())}
        parts = [one.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for one in own.values()]
        table = json.dumps([[name, part.numel()] for name, part in zip(own, parts, strict=True)]).encode()
        text = len(table).to_bytes(_LENGTH, "little") + table
        whole = len(text) + sum(one.numel() for one in parts)
        self._room = room_for(whole, self._room)
        mine = torch.zeros(self._room, dtype=torch.uint8)
        torch.cat([torch.frombuffer(bytearray(text), dtype=torch.uint8), *parts], out=mine[:whole])
        return mine

    def agree(self, step: int, has_it: bool) -> bool:
        """Return whether all ranks have the snapshot of this step, with what its neighbour gave. All call it together.

        `has_it`: whether this one has.
        """
        # The first exchange waits for slots.
        seconds = time.perf_counter() - self._began if self.step >= 0 else None
        (lacking,) = self._agree(step, seconds, not has_it)
        return not lacking


def room_for(length: int, room: int) -> int:
    """Return a length to pad to: the present one, as long as it is enough."""
    return room if length <= room else -(-length * 5 // 4 // _ROOM) * _ROOM


def joined(shared: Mapping[str, Tensor], blob: Tensor, rank: int, allowed: Allowed) -> dict[str, Tensor]:
    """Return a rank's state, from what is on all ranks and what was its own.

    Raises:
        SlotError: its own part is not one.
    """
    own: dict[str, Tensor] = {}
    try:
        at = _LENGTH + int.from_bytes(blob[:_LENGTH].numpy().tobytes(), "little")
        for name, length in bounded_json.parse(blob[_LENGTH:at].numpy().tobytes(), 2 * _MOST_NAMES, _MOST_NAMES):
            raw = blob[at : at + range(blob.numel() + 1)[length]].clone()
            at += length
            like = shared.get(name)
            if like is not None and math.prod(like.shape) * like.dtype.itemsize == raw.numel():
                own[name] = raw.view(like.dtype).reshape(like.shape) if raw.numel() else like.clone()
            elif name.startswith(f"{OWN}/{rank}/") and raw.numel() == length:
                own[name] = raw
            else:
                raise ValueError(f"{name!r:.80} is none of its tensors")
    except (ValueError, TypeError, RuntimeError) as error:
        raise SlotError(f"the part of rank {rank} that its neighbour kept cannot be read: {error}") from None
    for name, tensor in own.items():
        if problem := complaint(name, tensor, allowed):
            raise SlotError(problem)
    return {**shared, **own}
