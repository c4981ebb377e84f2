"""Go on from memory where a replica was lost.

Its ranks take what all share from any other rank, and what was theirs from a neighbour (`neighbours.py`). Where the
model is divided, a neighbour has copies of their whole snapshots (`slot_copies.py`), which are put back.
"""

from __future__ import annotations

import errno
import logging
import mmap
from dataclasses import replace
from typing import Any

import torch

from trainmaster_trainer.checkpoint.neighbours import NEIGHBOUR, joined
from trainmaster_trainer.checkpoint.recall import readable, spread
from trainmaster_trainer.checkpoint.slot import Key, Owner, SlotError, Snapshot, new_page
from trainmaster_trainer.checkpoint.slot_copies import receive, send
from trainmaster_trainer.checkpoint.soundness import Allowed
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)
BROUGHT = 9  # the number of a slot that no rank writes


def restored(
    key: Key, here: State | None, lacking: list[bool], held: list[list[Owner]], mine: list[Snapshot], *,
    allowed: Allowed, group: Group,
) -> State | None:  # fmt: skip
    """Return this rank's state, if each rank that has lost its own finds it at a neighbour. All ranks call it together.

    `lacking`: which ranks have none, but not all; `here`: what this one has.
    """
    keepers = {one.carries: viewer for viewer, rows in reversed([*enumerate(held)]) for one in rows if one.key == key}
    lost = [rank for rank, lacks in enumerate(lacking) if lacks]
    if not keepers.keys() >= {*lost}:
        return None
    base = spread(here, lacking.index(False), group)
    problem = ""
    for rank in lost:
        carrying = [one for one in mine if one.owner.key == key and one.owner.carries == rank]
        blob = next(readable(NEIGHBOUR, carrying), None) if group.rank == keepers[rank] else None
        length = group.broadcast(0 if blob is None else blob.numel(), keepers[rank])
        blob = torch.empty(length, dtype=torch.uint8) if blob is None else blob
        group.broadcast_tensor(blob, keepers[rank])
        if group.rank == rank:
            try:
                here = replace(base, tensors=joined(base.tensors, blob, rank, allowed))
            except SlotError as error:
                problem = str(error)
    return None if any(group.gather(problem)) else here


def bring_back(key: Key, held: list[list[Owner]], mine: list[Snapshot], settings: Settings, group: Group) -> list[int]:
    """Put copies of lost snapshots back where they were; return the ranks that had lost them. All ranks call it."""
    seen = [[one.rank for one in rows if one.key == key and not one.replicated] for rows in held]
    keepers = {rank: next((one for one, ranks in enumerate(seen) if rank in ranks), -1) for rank in range(len(held))}
    lost = [rank for rank, ranks in enumerate(seen) if rank not in ranks and keepers[rank] >= 0]

    def make(length: int) -> mmap.mmap:
        if settings.memory is None:
            raise OSError(errno.ENOENT, "there is no folder in memory")
        return new_page(settings.memory / f"{settings.run_key}.rank-{group.rank}.slot-{BROUGHT}", length)

    sent: list[Any] = []
    for rank in lost:
        if group.rank == keepers[rank]:
            path = next(one.path for one in mine if one.owner.key == key and one.owner.rank == rank)
            sent += send(torch.from_file(str(path), size=path.stat().st_size, dtype=torch.uint8), rank, group)
        elif group.rank == rank and (problem := receive(keepers[rank], group, make)):
            log.warning("The snapshot of step %d that another rank keeps is not used: %s.", key[0], problem)
    for one in sent:
        one.wait()
    return lost
