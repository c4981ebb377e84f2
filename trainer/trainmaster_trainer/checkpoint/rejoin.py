"""Go on from memory where a replica was lost.

Its ranks take what all share from any other rank, and what was theirs from a neighbour (`neighbours.py`). Where the
model is divided, a neighbour has copies of their whole snapshots (`slot_copies.py`), which are put back.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainmaster_trainer.checkpoint.memory import PENDING
from trainmaster_trainer.checkpoint.neighbours import NEIGHBOUR, joined
from trainmaster_trainer.checkpoint.of_scripts import OWN
from trainmaster_trainer.checkpoint.slot import Key, LoadedSnapshot, Owner, SlotError, Snapshot, new_page
from trainmaster_trainer.checkpoint.slot_copies import receive, send
from trainmaster_trainer.checkpoint.soundness import Allowed
from trainmaster_trainer.checkpoint.state import State, dtype_name
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)
BROUGHT = 9  # the number of a slot that no rank writes


def restored(
    here: State | None, lacking: list[bool], held: list[list[Owner]], mine: list[LoadedSnapshot], *,
    allowed: Allowed, group: Group,
) -> State | None:  # fmt: skip
    """Return this rank's state; None, if a rank that lacks it had something of its own and finds it at no neighbour.

    All ranks call it together. `lacking`: which have none, but not all; `here`: what this one has; `mine` and `held`:
    the snapshots of the state that was chosen, here and as all ranks see them.
    """
    # What ranks had alone is kept by their neighbours; where all is replicated, they had nothing alone.
    keepers = {one.carries: viewer for viewer, rows in reversed([*enumerate(held)]) for one in rows}
    replicated = any(one.replicated for rows in held for one in rows)
    lost = [rank for rank, lacks in enumerate(lacking) if lacks and not replicated]
    if not keepers.keys() >= {*lost}:
        return None

    # What all ranks share comes from one that has it.
    holder, problem = lacking.index(False), ""
    base = here if here is not None and group.rank == holder else State()
    forms = {
        name: (dtype_name(one.dtype), tuple(one.shape))
        for name, one in base.tensors.items()
        if name not in (PENDING, NEIGHBOUR) and not name.startswith(f"{OWN}/")
    }
    forms, scalars = group.broadcast([forms, base.scalars], holder)
    shared = {}
    for name, (dtype, shape) in forms.items():
        # Not into what this rank has, some of which is its own.
        like = base.tensors.get(name)
        shared[name] = torch.empty(shape, dtype=getattr(torch, dtype)) if like is None else like.contiguous()
        group.broadcast_tensor(shared[name], holder)
    if here is None:
        here = State(shared, scalars)

    # What a lost rank had alone comes from its neighbour: all get it, and that rank takes it.
    for rank in lost:
        keeper = keepers[rank]
        kept = [one.tensors[NEIGHBOUR] for one in mine if one.owner.carries == rank and group.rank == keeper]
        length = group.broadcast(kept[0].numel() if kept else 0, keeper)
        blob = kept[0] if kept else torch.empty(length, dtype=torch.uint8)
        group.broadcast_tensor(blob, keeper)
        if group.rank == rank:
            try:
                here = replace(here, tensors=joined(shared, blob, rank, allowed))
            except SlotError as error:
                problem = str(error)
    return None if any(group.gather(problem)) else here


def bring_back(key: Key, held: list[list[Owner]], mine: list[Snapshot], settings: Settings, group: Group) -> list[int]:
    """Put copies of lost snapshots back where they were; return the ranks that had lost them. All ranks call it."""
    seen = [[one.rank for one in rows if one.key == key and not one.replicated] for rows in held]
    keepers = {rank: next((one for one, ranks in enumerate(seen) if rank in ranks), -1) for rank in range(len(held))}
    lost = [rank for rank, ranks in enumerate(seen) if rank not in ranks and keepers[rank] >= 0]

    # Where there is no folder in memory, its name is of nothing that can be made.
    path = (settings.memory or Path(os.devnull)) / f"{settings.run_key}.rank-{group.rank}.slot-{BROUGHT}"
    sent: list[Any] = []
    for rank in lost:
        if group.rank == keepers[rank]:
            kept = next(one.path for one in mine if one.owner.key == key and one.owner.rank == rank)
            sent += send(torch.from_file(str(kept), size=kept.stat().st_size, dtype=torch.uint8), rank, group)
        elif group.rank == rank and (problem := receive(keepers[rank], group, partial(new_page, path))):
            log.warning("The snapshot of step %d that another rank keeps is not used: %s.", key[0], problem)
    for one in sent:
        one.wait()
    return lost
