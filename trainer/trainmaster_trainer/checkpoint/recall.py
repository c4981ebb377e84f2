"""Go on from memory: decide which snapshot all ranks can restore together, and send it to those that lack it.

Where every rank holds the whole model, one snapshot of any rank is enough: a replaced pod gets it from a live one.
Where ranks split the model, each needs its own, of the same step, or the copy of it that another replica has.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from trainmaster_trainer.batch_losses import COLUMNS, MOST_STEPS
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.memory import PENDING, slots_in
from trainmaster_trainer.checkpoint.parts import Cut
from trainmaster_trainer.checkpoint.slot import Key, LoadedSnapshot, Owner, SlotError, Snapshot, look
from trainmaster_trainer.checkpoint.soundness import Oddity, complaint
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.metric_names import MOST_METRICS
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recalled:
    """Recalled is a state that all ranks have agreed on."""

    step: int
    attempt: int
    state: State
    pending: tuple[Tensor, ...]  # losses that no file has yet: its own, and those of ranks that are no more
    holder: int  # a rank that had it


def choose(held: list[list[Owner]]) -> Key | None:
    """Return the newest step and attempt that the ranks can restore, given what each sees in memory; None: nothing.

    A state that every rank wrote itself comes before one that is newer by a single snapshot and has to be passed on:
    with it, the losses that no file has yet are those of every rank. What one rank alone had may be a neighbour's.
    """
    keys = sorted({one.key for rows in held for one in rows}, reverse=True)
    # Of which states each folder has all that any rank can go on from.
    passable = [
        {
            key
            for key in keys
            if (found := [one for one in rows if one.key == key and one.replicated])
            and {one.part for one in found} == {*range(found[0].parts)}
        }
        for rows in held
    ]
    complete = []
    for key in keys:
        alike = [[one for one in rows if (one.key, one.world_size) == (key, len(held))] for rows in held]
        # Of which ranks another one has a copy, or what they alone had.
        kept = {rank for rows in alike for one in rows for rank in (one.carries, -1 if one.replicated else one.rank)}
        for rank, rows in enumerate(alike):
            own = [one for one in rows if one.rank == rank]
            if own and (own[0].parts == 1 or key in passable[rank]):
                kept.add(rank)
        if kept >= {*range(len(held))}:
            complete.append(key)
    replicated = [key for key in keys if any(key in folder for folder in passable)]
    if complete and len([key for key in replicated if key > complete[0]]) <= 1:
        return complete[0]
    return max([*complete, *replicated], default=None)


def find_snapshots(settings: Settings, state: State, lineage: Lineage) -> list[Snapshot]:
    """Return the whole snapshots of this job in memory that lie on the way of the training and are finite.

    `state`: of the model and the optimizer as they are now.
    """
    found = []
    before = (settings.rank - settings.local_world_size) % settings.world_size
    for path in slots_in(settings.memory) if settings.memory else ():
        try:
            snapshot = look(path)
        except SlotError:
            continue  # a kill met it in mid-write: there is another
        owner = snapshot.owner
        near = owner.replicated or owner.rank in (settings.rank, before)  # else it is for another rank to look at
        on_the_way = lineage.holds(owner.attempt, owner.step, in_memory=True)
        copied = not owner.replicated and owner.rank != settings.rank
        if owner.job == settings.job_uid and near and on_the_way and _is_sound(snapshot, state, copied):
            found.append(snapshot)
    return found


def _is_sound(snapshot: Snapshot, like: State, copied: bool) -> bool:
    """Return whether it is of this model and finite, as far as this rank knows which tensors may be infinite.

    Of a copy of another rank's (`copied`) it does not know all: that rank looks itself, when it has it back.
    This is checked here and not when the snapshot is taken: a restart can spare the time, and a step cannot.
    """
    try:
        loaded = snapshot.load()
    except SlotError:
        return False
    if snapshot.owner.replicated and loaded.model_shapes() != like.model_shapes():
        return False
    tensors = loaded.tensors
    losses = tensors.pop(PENDING, None)
    if (
        losses is not None
        and (losses.dtype, losses.shape[:-1]) == (torch.float64, (MOST_STEPS,))
        and COLUMNS <= losses.shape[1] <= COLUMNS + MOST_METRICS
    ):
        tensors[PENDING] = losses[:, :COLUMNS]  # a metric may be NaN
    unknown = tensors.keys() - like.tensors.keys() if copied else ()
    allowed = {**dict.fromkeys(unknown, Oddity.INFINITE), **like.allowed}
    wrong = [complaint(name, tensor, allowed) for name, tensor in tensors.items()]
    problem = next(filter(None, wrong), "" if PENDING in tensors else "its losses are missing")
    if problem:
        log.warning("The snapshot of step %d in memory is not used: %s.", snapshot.owner.step, problem)
    return not problem


def load(fitting: list[LoadedSnapshot], settings: Settings) -> State | None:
    """Return the rank's own snapshot, or its neighbours' of the same model, joined; None if it is incomplete."""
    me = (settings.rank, settings.world_size)
    own = [one for one in fitting if (one.owner.rank, one.owner.world_size) == me]
    if own and own[0].owner.parts == 1:
        return State(own[0].tensors, own[0].scalars)
    parts = sorted((one for one in fitting if one.owner.replicated), key=lambda one: one.owner.part)
    if not parts:
        return None
    base = own[0] if own else parts[0]  # what is this rank's alone comes from its own part
    joined = {}
    for name, cut in parts[0].cuts.items():
        pieces = [one.tensors[name] for one in parts if name in one.tensors]
        forms = {(piece.dtype, piece.dim(), cut.whole(tuple(piece.shape))) for piece in pieces}
        ends = [*accumulate((piece.shape[cut.dimension] for piece in pieces if len(forms) == 1), initial=0)]
        if [one.cuts.get(name) for one in parts] != [Cut(cut.dimension, begin, ends[-1]) for begin in ends[:-1]]:
            log.warning("The snapshots in memory are not used: their parts of %s do not make one tensor.", name)
            return None
        joined[name] = torch.cat(pieces, cut.dimension)
    return State({**base.tensors, **joined}, base.scalars)


def pending(mine: list[LoadedSnapshot], held: list[list[Owner]], rank: int) -> tuple[Tensor, ...]:
    """Return losses for this rank to keep. Each earlier rank's go to the same rank, or to the lowest that sees them.

    `mine`: the snapshots here of the state that was chosen; `held`: what all ranks see of it.
    """
    seen: dict[int, list[int]] = {}
    for viewer, rows in enumerate(held):
        for one in rows:
            seen.setdefault(one.rank, []).append(viewer)
    here = {old for old, viewers in seen.items() if rank == (old if old in viewers else viewers[0])}
    # No views, which would keep the files from being inherited.
    return tuple(one.tensors[PENDING].clone() for one in mine if one.owner.rank in here)
