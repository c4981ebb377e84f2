"""The memory tier keeps the state after every step (or every few) in a folder that outlives the rank's process.

The agent makes the folder in /dev/shm (`TRAINMASTER_MEMORY`) and removes it when it leaves; so what kills a rank does
not kill its snapshot, and what kills a pod leaves those of the other pods. Two slots take turns, files of the attempt
that writes them. It takes over those of the attempt before, one at a time, once no other process can write to them: a
late process of an older attempt has other files.

    <memory>/attempt-2-restart-1.rank-0.slot-1

A snapshot is taken every step, as long as that costs at most 3 % of the training's time (of a task's: or next to
nothing); else as seldom as that takes (`spec.checkpoint.memoryEverySteps` fixes it, 0 turns it off). Only after steps
at which the ranks wait for one another, though (`sync_every`): else they could be further apart than two slots reach
back, with no step of which all have a snapshot. `recall.py` reads the snapshots. Where the next replica keeps copies of
them (`slot_copies.py`), there is a third slot: the snapshot of which all ranks have a copy stays.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from torch import Tensor

from trainmaster_trainer.agent.room import memory_left
from trainmaster_trainer.checkpoint.checkpointable import Checkpointable, Snapshots
from trainmaster_trainer.checkpoint.neighbours import NEIGHBOUR, Neighbours
from trainmaster_trainer.checkpoint.parts import Cut, cut
from trainmaster_trainer.checkpoint.slot import Owner, Slot, size, step_of
from trainmaster_trainer.checkpoint.slot_copies import COPIES, SlotCopies
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)

PENDING = "pending"
COST = 0.03  # of the training's time
_OF_COPIES = 0.01  # of the training's time, at least, which snapshots leave for copies of them at the next replica
_SURELY = 0.7  # of that, before snapshots become more frequent
FREE_SECONDS = 0.0005  # of a task: a snapshot that takes less is taken after every step, however short the steps are
SLOTS = 2
_ROOM = 1 << 16  # bytes for scalars, at least
_MOST_EVERY = 10_000
_OF_RANK = re.compile(r"\.rank-(\d+)\.slot-\d+$")


class Memory:
    """Memory keeps this rank's newest states in memory. `dataset`: how many samples there are.

    `free`: a snapshot that takes fewer seconds costs nothing.
    """

    def __init__(
        self, settings: Settings, group: Group, training: Checkpointable, dataset: int = 0, free: float = FREE_SECONDS
    ) -> None:
        asked = settings.plan.memory_every
        self._free = free
        self._dataset = dataset
        self._settings, self._group, self._training = settings, group, training
        self._folder = settings.memory
        self._fixed = bool(asked)
        # Ranks that all have the same keep one snapshot in each replica, together.
        self._alike = training.snapshots is Snapshots.REPLICATED
        self._part, self._parts = (settings.local_rank, settings.local_world_size) if self._alike else (0, 1)
        self._neighbours = Neighbours(group) if training.snapshots is Snapshots.NEIGHBOURS else None
        copied = training.snapshots is Snapshots.COPIED and group.world_size > group.local_world_size
        self._copies = SlotCopies(group, self._path) if copied else None
        self._slots: list[Slot] = []
        self._old: list[Path] = []
        self._heirlooms: list[Path] = []  # files of this rank that slots may take over, the least worth first
        self._cuts: dict[str, Cut] = {}
        self._kept = self._next = 0
        self._copied = -1  # the slot with the snapshot of which all have a copy
        self.every = self._in_sync(asked or 1)
        self._lately: deque[float] = deque(maxlen=9)  # seconds, without the first ones, which make their pages
        self.seconds = 0.0  # what a snapshot takes, or the first ones took
        self.on = asked != 0 and training.snapshots is not Snapshots.NONE

    def start(self, step: int) -> None:
        """Begin an attempt that goes on from `step`. Older snapshots are kept until there is something newer."""
        if self._folder is not None:
            found = slots_in(self._folder)
            number, ranks = self._settings.rank, self._settings.local_world_size
            self._old = [path for path in found if _rank(path) in (number, None)]
            self._heirlooms = _by_worth([path for path in found if _rank(path) == number], step)
            present = {*range(self._settings.world_size)}
            if self._copies:
                before = self._copies.before
                self._copies.heirlooms = _by_worth([path for path in found if _rank(path) == before], step)
                present = {*range(number, number + ranks), *range(before, before + ranks)}  # as local rank 0 has it
            if self._settings.local_rank == 0:  # those of ranks that there are no more, or not here
                self._old += [path for path in found if _rank(path) not in present]

    def _in_sync(self, every: int) -> int:
        """Return this interval in steps, rounded up to one at whose ends the ranks wait for one another."""
        return -(-every // self._training.sync_every) * self._training.sync_every

    def due(self, step: int, stride: int = 1) -> bool:
        """Return whether a snapshot is to be taken after this step, which comes `stride` steps after the last one."""
        return self.on and step // self.every > (step - stride) // self.every

    def keep(self, step: int, pending: Tensor) -> None:
        """Take a snapshot. All ranks call it after the same steps. `pending`: losses that no file has yet."""
        began = time.perf_counter()
        state = self._training.local_state()
        tensors, self._cuts = cut(state.tensors, self._part, self._parts)
        tensors[PENDING] = pending
        if self._neighbours:
            tensors[NEIGHBOUR] = self._neighbours.exchange(state)
        scalars = json.dumps(state.scalars).encode()
        if not self._slots:
            self._agree_to_open(tensors, scalars)
        if self.on and self._ready(tensors, scalars):
            self._slots[self._next].write(step, tensors, scalars)
            self._kept += 1
            if self._kept == self._count:  # not at the first new one: a peer may die before it has taken the same
                for path in {*self._old} - {slot.path for slot in self._slots}:
                    path.unlink(missing_ok=True)
                self._old, self._heirlooms = [], []
        if self._neighbours and self._slots:  # no step counts before all have kept theirs: any of them may be lost
            self.on = self._group.all(self.on)
        self.seconds = time.perf_counter() - began
        if self._kept > self._count:
            self._lately.append(self.seconds)
            self.seconds = median(self._lately)
        if self._copies and self._slots:
            self._copy(self._copies, step)
        turns = [(self._next + turn) % self._count for turn in range(1, SLOTS + 1)]
        self._next = turns[0] if turns[0] != self._copied else turns[1]

    @property
    def _count(self) -> int:
        """Return how many slots take turns."""
        return len(self._slots) or (SLOTS + 1 if self._copies else SLOTS)

    def _copy(self, copies: SlotCopies, step: int) -> None:
        """Give the snapshot of this step to the next replica, if that is due."""
        self.on = copies.keep(step, self._slots[self._next], self.on)
        if copies.step == step:
            self._copied = self._next
        if copies.lacking:
            self._end_copies(copies.problem)

    def _end_copies(self, problem: str) -> None:
        """Let all ranks keep their own snapshots alone. `problem`: why, if the reason is here."""
        if problem:
            log.warning(
                "No copies of snapshots are kept, so a lost pod costs the steps since the last checkpoint: %s. Give "
                "the replicas more memory.",
                problem,
            )
        if self._copies:
            self._copies.remove()
        self._copies, self._copied = None, -1

    def adapt(self, step_seconds: float, snapshot_seconds: float) -> None:
        """Choose the interval, from seconds that all ranks agree on: of a step (with snapshots), and of a snapshot."""
        if not self.on or self._fixed or not self._lately:
            return
        spent, copies = snapshot_seconds / self.every, self._copies
        if copies is None:
            training = max(step_seconds - spent, 1e-6)
            steps = interval(self.every, training, snapshot_seconds, self._free)
        else:
            training = max(step_seconds - spent - copies.seconds / copies.every, 1e-6)
            steps = interval(self.every, training, snapshot_seconds, self._free, COST - _OF_COPIES)
            copies.every = interval(
                copies.every, training, copies.seconds, 0.0, max(COST - spent / training, _OF_COPIES)
            )
        if steps == self.every:
            return
        every = self._in_sync(min(steps, _MOST_EVERY))
        if every != self.every and self._group.is_first:
            log.debug(
                "Memory tier: a snapshot takes %.2f ms and a step %.2f ms, so one is taken every %d steps.",
                snapshot_seconds * 1e3, training * 1e3, every,
            )  # fmt: skip
        self.every = every

    def forget(self) -> None:
        """Delete the snapshots, as their state is damaged: the next attempt goes on from a checkpoint."""
        for slot in self._slots:
            slot.remove()
        if self._copies:
            self._copies.remove()

    def _agree_to_open(self, tensors: Mapping[str, Tensor], scalars: bytes) -> None:
        """Open for all ranks or for none: a snapshot that some ranks lack is of no use where ranks split a model."""
        folder = self._folder  # without an agent there is none, and no snapshots are expected
        room = 2 * len(scalars) + _ROOM
        if self._copies:
            problem = self._lacks(folder, size(tensors, room), COPIES, self._copies.heirlooms) if folder else ""
            if not self._group.all(folder is not None and not problem):
                self._end_copies(problem)
        problem = self._lacks(folder, size(tensors, room)) if folder else ""
        # No rank makes its slots before all have looked: a rank that looks later would count its neighbours' twice.
        self.on = self._group.all(folder is not None and not problem)
        if self.on:
            try:
                self._slots = [self._slot(number, tensors, room) for number in range(self._count)]
            except OSError as error:
                problem = f"{_mib(self._count * size(tensors, room))} MiB in {folder}: {error.strerror}"
            self.on = self._group.all(not problem)
        if not self.on:
            for slot in self._slots:
                slot.remove()
        if problem:
            log.warning(
                "The memory tier is off, so a failure costs the steps since the last checkpoint: %s. Give the replicas "
                "more memory, or set spec.checkpoint.memoryEverySteps to 0.",
                problem,
            )

    def _lacks(self, folder: Path, one: int, copies: int = 0, old: Sequence[Path] = ()) -> str:
        """Return, in words, that the replica has no room for its ranks' slots of this size; "" if it has.

        `copies`: so many more of each, for which there are `old` files. They must leave as much as they take: a
        training may come to need more, and copies are no reason for the kernel to end it.
        """
        files = [*self._heirlooms[: self._count], *old[:copies]]
        inherited = sum(abs(path.stat().st_size - one) < _ROOM for path in files)
        new = self._count + copies - inherited
        left = max(0, new - SLOTS) if copies else 0
        each = one * self._settings.local_world_size
        try:
            free = free_memory(folder)
        except OSError as error:
            return f"{folder}: {error.strerror}"
        if (new + left) * each <= free:
            return ""
        return (
            f"{new} snapshots for each of {self._settings.local_world_size} ranks take {_mib(new * each)} MiB"
            f"{f' and are to leave {_mib(left * each)} MiB' * (left > 0)}, and {_mib(free)} MiB of memory are free"
        )

    def _slot(self, number: int, tensors: Mapping[str, Tensor], room: int) -> Slot:
        settings = self._settings
        path = self._path(settings.rank, number)
        path.unlink(missing_ok=True)
        owner = Owner(
            settings.job_uid,
            settings.attempt,
            settings.rank,
            settings.world_size,
            self._alike,
            self._part,
            self._parts,
            dataset=self._dataset,
            carries=self._neighbours.before if self._neighbours else -1,
        )
        heir_to = self._heirlooms.pop(0) if self._heirlooms else None
        return Slot(path, owner, tensors, room, heir_to=heir_to, cuts=self._cuts)

    def _path(self, rank: int, number: int) -> Path:
        return (self._folder or Path()) / f"{self._settings.run_key}.rank-{rank}.slot-{number}"

    def _ready(self, tensors: Mapping[str, Tensor], scalars: bytes) -> bool:
        """Return whether the next slot fits, perhaps after it was made anew: an optimizer may come to keep more."""
        number = self._next
        slot = self._slots[number]
        if slot.fits(tensors, scalars):
            return True
        try:
            self._slots[number] = self._slot(number, tensors, 2 * len(scalars) + _ROOM)
        except OSError as error:
            log.warning("Snapshots in memory end here: %s.", error.strerror)
            self.on = False
        return self.on


def interval(now: int, training: float, snapshot: float, free: float, cost: float = COST) -> int:
    """Return after how many steps of `training` seconds each to take a snapshot, which takes so many seconds itself.

    `cost`: the share of the time that this may take.

    Half as often or twice as often as now, at least, and sooner the former: a figure that trembles changes nothing.
    """
    share = 0.0 if snapshot <= free else snapshot / training
    seldom, often = max(1, math.ceil(share / cost)), max(1, math.ceil(share / (_SURELY * cost)))
    if seldom >= 2 * now:
        return seldom
    return often if 2 * often <= now else now


def _by_worth(paths: Iterable[Path], step: int) -> list[Path]:
    """Return the files, those first that are worth least to a training that goes on from `step`."""
    steps = {path: step_of(path) for path in paths}
    return sorted(steps, key=lambda path: steps[path] if steps[path] <= step else -1)


def free_memory(folder: Path) -> int:
    """Return the bytes that a replica may still take: the least of folder, machine and container limit."""
    disk = os.statvfs(folder)
    return max(0, min([disk.f_bavail * disk.f_frsize, *memory_left()]))


def slots_in(folder: Path) -> list[Path]:
    """Return the files of all ranks' snapshots in a folder, by name; none if it was deleted.

    This avoids `Path.glob`, which compiles its pattern in each process anew: a restart waits for that.
    """
    with suppress(FileNotFoundError):
        return [folder / name for name in sorted(os.listdir(folder)) if ".slot-" in name]  # noqa: PTH208 a name will do
    return []


def _rank(path: Path) -> int | None:
    found = _OF_RANK.search(path.name)
    return int(found[1]) if found else None


def _mib(count: int) -> int:
    return -(-count // (1 << 20))
