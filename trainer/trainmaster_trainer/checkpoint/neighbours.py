"""Let the next replica keep what one rank alone has of a state, where all else is the same on all ranks.

The ranks of a script have the same model, and each its own random numbers, loaders and running means (`State.own`).
With every snapshot a rank gives these to the rank of the same local number in the next replica, and keeps those of the
one before in its own slot. So a replica that is lost costs no step: its ranks take the model from any other rank, and
what was theirs from the neighbour. What two neighbours that are lost together had is gone.

    8 bytes      how long the text is
    JSON         [[name, bytes], ...]
    bytes        of the tensors, one after the other
    zeros        up to a length that seldom changes, as a slot has room for one length
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from trainmaster.wire import bounded_json

from trainmaster_trainer.checkpoint.of_scripts import OWN
from trainmaster_trainer.checkpoint.slot import SlotError
from trainmaster_trainer.checkpoint.soundness import Allowed, complaint
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.group import Group

NEIGHBOUR = "neighbour"  # among the tensors of a snapshot
_LENGTH = 8
_ROOM = 4096  # bytes, of which a length is a multiple
_MOST_NAMES = 200_000


class Neighbours:
    """Neighbours exchanges what each rank alone has. All ranks call it after the same steps."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.before, self._after = beside(group)  # whose own part this rank keeps, and who keeps its own
        self._room = 0

    def exchange(self, state: State) -> Tensor:
        """Give this rank's own part to the next replica. Return that of the one before."""
        own = {name: state.tensors[name] for name in sorted(state.own or ())}
        parts = [one.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for one in own.values()]
        table = json.dumps([[name, part.numel()] for name, part in zip(own, parts, strict=True)]).encode()
        text = len(table).to_bytes(_LENGTH, "little") + table
        whole = len(text) + sum(one.numel() for one in parts)
        self._room = room_for(whole, self._room)
        mine = torch.zeros(self._room, dtype=torch.uint8)
        torch.cat([torch.frombuffer(bytearray(text), dtype=torch.uint8), *parts], out=mine[:whole])
        length, processes = torch.tensor([self._room]), self._group.processes
        sent: list[Any] = [dist.isend(one, self._after, processes) for one in (length, mine)]
        theirs = torch.zeros(1, dtype=torch.int64)
        dist.recv(theirs, self.before, processes)
        kept = torch.empty(int(theirs[0]), dtype=torch.uint8)
        dist.recv(kept, self.before, processes)
        for one in sent:
            one.wait()
        return kept


def beside(group: Group) -> tuple[int, int]:
    """Return the ranks of the same local number in the replicas before and after this one."""
    step = group.local_world_size
    return (group.rank - step) % group.world_size, (group.rank + step) % group.world_size


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
