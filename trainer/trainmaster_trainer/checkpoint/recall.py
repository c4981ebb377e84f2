"""Go on from memory: decide which snapshot all ranks can restore together, and send it to those that lack it.

Where every rank holds the whole model, one snapshot of any rank is enough: a replaced pod gets it from a live one.
Where ranks split the model, each needs its own, of the same step, or the copy of it that another replica has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainmaster_trainer.batch_losses import COLUMNS, MOST_STEPS
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.memory import PENDING, slots_in
from trainmaster_trainer.checkpoint.neighbours import NEIGHBOUR
from trainmaster_trainer.checkpoint.of_scripts import OWN
from trainmaster_trainer.checkpoint.parts import Cut
from trainmaster_trainer.checkpoint.slot import Key, LoadedSnapshot, Owner, SlotError, Snapshot, look
from trainmaster_trainer.checkpoint.soundness import Oddity, complaint
from trainmaster_trainer.checkpoint.state import State, dtype_name
from trainmaster_trainer.group import Group
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
        {key for key in keys if _is_whole([one for one in rows if one.key == key and one.replicated])} for rows in held
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


def _is_whole(found: Sequence[Owner]) -> bool:
    return bool(found) and {one.part for one in found} == set(range(found[0].parts))


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
        on_the_way = lineage.holds(owner.attempt, owner.step) and not settings.doubts(owner.attempt)
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


def load(fitting: list[Snapshot], settings: Settings) -> State | None:
    """Return the rank's own snapshot, or its neighbours' of the same model, joined; None if it is incomplete."""
    me = (settings.rank, settings.world_size)
    own = [one for one in fitting if (one.owner.rank, one.owner.world_size) == me]
    alike = sorted((one for one in fitting if one.owner.replicated), key=lambda one: one.owner.part)
    try:
        if own and own[0].owner.parts == 1:
            loaded = own[0].load()
            return State(loaded.tensors, loaded.scalars)
        if not _is_whole([one.owner for one in alike]):
            return None
        parts = [one.load() for one in alike]
        base = parts[alike.index(own[0]) if own else 0]  # what is this rank's alone comes from its own part
        for name, cut in parts[0].cuts.items():
            if not _fit(parts, name, cut):
                raise SlotError(f"the parts of {name} are not those of one tensor")
            base.tensors[name] = torch.cat([one.tensors[name] for one in parts], cut.dimension)
        return State(base.tensors, base.scalars)
    except SlotError as error:
        log.warning("A snapshot in memory cannot be read: %s.", error)
        return None


def _fit(loaded: list[LoadedSnapshot], name: str, cut: Cut) -> bool:
    """Return whether the parts of a tensor, in their order, make the whole that the first says."""
    begin = 0
    for one in loaded:
        tensor, here = one.tensors.get(name), one.cuts.get(name)
        if tensor is None or here != Cut(cut.dimension, begin, cut.length):
            return False
        if here.whole(tuple(tensor.shape)) != cut.whole(tuple(loaded[0].tensors[name].shape)):
            return False
        if tensor.dtype != loaded[0].tensors[name].dtype:
            return False
        begin += tensor.shape[cut.dimension]
    return begin == cut.length


def pending(key: Key, mine: list[Snapshot], held: list[list[Owner]], rank: int) -> tuple[Tensor, ...]:
    """Return losses for this rank to keep. Each earlier rank's go to the same rank, or to the lowest that sees them."""
    seen: dict[int, list[int]] = {}
    for viewer, rows in enumerate(held):
        for one in rows:
            if one.key == key:
                seen.setdefault(one.rank, []).append(viewer)
    here = {old for old, viewers in seen.items() if rank == (old if old in viewers else viewers[0])}
    return tuple(readable(PENDING, [one for one in mine if one.owner.key == key and one.owner.rank in here]))


def readable(name: str, snapshots: list[Snapshot]) -> Iterator[Tensor]:
    """Yield the tensor of this name of each snapshot that has it and can be read."""
    for snapshot in snapshots:
        with suppress(SlotError, KeyError):
            yield snapshot.load().tensors[name].clone()  # no view, which would keep the file from being inherited


def spread(here: State | None, holder: int, group: Group) -> State:
    """Return what rank `holder` has and all share: without losses, and without values that are its own."""
    table: Any = None
    if here is not None and group.rank == holder:
        forms = {
            name: (dtype_name(one.dtype), tuple(one.shape))
            for name, one in here.tensors.items()
            if name not in (PENDING, NEIGHBOUR) and not name.startswith(f"{OWN}/")
        }
        table = {"tensors": forms, "scalars": here.scalars}
    table = group.broadcast(table, holder)
    sent = {}
    for name, (dtype, shape) in table["tensors"].items():
        if here is not None and group.rank == holder:
            sent[name] = here.tensors[name].contiguous()
        else:  # not into what this rank has: of a state that goes on from neighbours' parts, some of it is its own
            sent[name] = torch.empty(shape, dtype=getattr(torch, dtype))
        group.broadcast_tensor(sent[name], holder)
    return State(sent, table["scalars"])
