"""The memory tier keeps the state after every step (or every few) in a folder that outlives the rank's process.

The agent makes the folder in /dev/shm (`TRAINMASTER_MEMORY`) and removes it when it leaves; so what kills a rank does
not kill its snapshot, and what kills a pod leaves those of the other pods. Two slots take turns, files of the attempt
that writes them. It takes over those of the attempt before, one at a time, once no other process can write to them: a
late process of an older attempt has other files.

    <memory>/attempt-2-restart-1.rank-0.slot-1

A snapshot is taken every step, as long as that costs at most 3 % of the training's time (of a task's: or next to
nothing); else as seldom as that takes (`intervals.py`; `spec.checkpoint.memoryEverySteps` fixes it, 0 turns it off).
Only after steps at which the ranks wait for one another, though (`sync_every`): else they could be further apart than
two slots reach back, with no step of which all have a snapshot. `recall.py` reads the snapshots.

Where snapshots are passed on to the next replica, whole (`slot_copies.py`) or what a rank alone has (`neighbours.py`),
and not each of them, there is a third slot: the one that was passed on last stays, as all ranks go on from the same
step. What a rank alone has is passed on with each snapshot at first, in two slots; the third one comes when that would
make snapshots more seldom than 3 % asks of them alone.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from trainmaster_trainer.agent.memory_left import memory_left
from trainmaster_trainer.checkpoint.checkpointable import Checkpointable, Snapshots
from trainmaster_trainer.checkpoint.intervals import FREE_SECONDS, cost_of, interval, separate
from trainmaster_trainer.checkpoint.neighbours import NEIGHBOUR, Neighbours
from trainmaster_trainer.checkpoint.parts import Cut, cut
from trainmaster_trainer.checkpoint.slot import Owner, SnapshotSlot, size, step_of
from trainmaster_trainer.checkpoint.slot_copies import COPIES, SlotCopies
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)

PENDING = "pending"
SLOTS = 2
_ROOM = 1 << 16  # bytes for scalars, at least
_MOST_EVERY = 10_000
_OF_RANK = re.compile(r"\.rank-(\d+)\.slot-\d+$")


class Memory:
    """Memory keeps this rank's newest states in memory. `dataset`: how many samples there are.

    `free`: a snapshot that takes fewer seconds costs nothing. `clock`: says how many seconds one has taken.
    """

    def __init__(
        self,
        settings: Settings,
        group: Group,
        training: Checkpointable,
        dataset: int = 0,
        *,
        free: float = FREE_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        asked = settings.plan.memory_every
        self._free, self._clock = free, clock
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
        self._slots: list[SnapshotSlot] = []
        self._old: list[Path] = []
        self._heirlooms: list[Path] = []  # files of this rank that slots may take over, the least worth first
        self._cuts: dict[str, Cut] = {}
        self._told: dict[str, Any] = {}  # the scalars of the last snapshot
        self._text = b"{}"  # the same as JSON
        self._kept = self._next = 0
        self._passed_on = -1  # the slot with the newest snapshot that all ranks have passed on
        self._is_short = False  # of memory for a third slot, on some rank
        self._able = True  # to write the slots; the other ranks may not know yet that this one is not
        self.every = self._in_sync(asked or 1)
        self._lately: deque[float] = deque(maxlen=16)  # seconds, without the first ones, which make their pages
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
        began = self._clock()
        state = self._training.local_state()
        tensors, self._cuts = cut(state.tensors, self._part, self._parts)
        tensors[PENDING] = pending
        if state.scalars is not self._told:
            self._told, self._text = state.scalars, json.dumps(state.scalars).encode()
        scalars = self._text
        if self._neighbours:  # what came last is not of this step, and counts for nothing in this snapshot
            tensors[NEIGHBOUR] = self._neighbours.given if self._slots else self._neighbours.exchange(step, state)
        if not self._slots:
            self._agree_to_open(tensors, scalars)
        elif self._neighbours and len(self._slots) == SLOTS and self._neighbours.every > self.every:
            self._agree_to_separate(self._neighbours, tensors, scalars)
        if self.on and self._able and self._ready(tensors, scalars):
            self._slots[self._next].write(step, tensors, scalars)
            self._kept += 1
            if self._kept == self._count:  # not at the first new one: a peer may die before it has taken the same
                for path in {*self._old} - {slot.path for slot in self._slots}:
                    path.unlink(missing_ok=True)
                self._old, self._heirlooms = [], []
        self.seconds = self._clock() - began
        if self._kept > self._count:
            self._lately.append(self.seconds)
            self.seconds = cost_of(self._lately)
        if self.on:
            self._pass_on(step, state, tensors, scalars)
        turns = [(self._next + turn) % self._count for turn in range(1, SLOTS + 1)]
        self._next = turns[0] if turns[0] != self._passed_on else turns[1]

    @property
    def _count(self) -> int:
        """Return how many slots take turns."""
        return len(self._slots) or (SLOTS + 1 if self._copies else SLOTS)

    def _pass_on(self, step: int, state: State, tensors: dict[str, Tensor], scalars: bytes) -> None:
        """Give the snapshot of this step, or this rank's own part of it, to the next replica, if that is due."""
        if self._copies:
            self.on = self._copies.keep(step, self._slots[self._next], self._able)
            if self._copies.step == step:
                self._passed_on = self._next
            if self._copies.lacking:
                self._end_copies(self._copies.problem)
        elif not self._neighbours:
            self.on = self.on and self._able
        elif len(self._slots) == SLOTS or self._neighbours.due(step):
            # No step counts before all have kept theirs. A rank that cannot take part must all the same.
            given = tensors[NEIGHBOUR] = self._neighbours.exchange(step, state)
            has_room = self._able and self._slots[self._next].fits(tensors, scalars)
            if self._able and not has_room and self._ready(tensors, scalars):
                self._slots[self._next].write(step, tensors, scalars)
            if self._able:
                self._slots[self._next].complete(NEIGHBOUR, given)
            self.on = self._neighbours.agree(step, self._able)
            self._passed_on = self._next

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
        self._copies, self._passed_on = None, -1

    def adapt(self, step_seconds: float, snapshot_seconds: float) -> None:
        """Choose the interval, from seconds that all ranks agree on: of a step (with snapshots), and of a snapshot."""
        if not self.on or self._fixed or not self._lately:
            return
        passing = self._copies or self._neighbours
        is_separate = passing is not None and len(self._slots) > SLOTS
        whole = snapshot_seconds + (passing.seconds if passing and not is_separate else 0.0)
        spent = whole / self.every + (passing.seconds / passing.every if passing and is_separate else 0.0)
        training = max(step_seconds - spent, 1e-6)
        steps = self.every if is_separate else interval(self.every, training, whole, self._free)
        if passing and (is_separate or not self._is_short):
            own, rest = separate(self.every, passing, training, snapshot_seconds, self._free)
            if is_separate or own < steps:
                steps, passing.every = own, min(rest, _MOST_EVERY)
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
            files = [*self._heirlooms[: self._count], *self._copies.heirlooms[:COPIES]]
            every = self._count + COPIES
            problem = self._lacks(folder, size(tensors, room), every, files, every - SLOTS) if folder else ""
            if not self._group.all(folder is not None and not problem):
                self._end_copies(problem)
        files = self._heirlooms[: self._count]
        problem = self._lacks(folder, size(tensors, room), self._count, files) if folder else ""
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

    def _agree_to_separate(self, neighbours: Neighbours, tensors: Mapping[str, Tensor], scalars: bytes) -> None:
        """Open a third slot for all ranks or for none: snapshots come more often than exchanges from now on."""
        room, number = 2 * len(scalars) + _ROOM, len(self._slots)
        problem = self._lacks(self._folder or Path(), size(tensors, room), 1, unneeded=1)
        self._is_short = not self._group.all(not problem)  # as above: all look before one makes its slot
        if not self._is_short:
            try:
                self._slots.append(self._slot(number, tensors, room))
            except OSError as error:
                problem = f"{_mib(size(tensors, room))} MiB in {self._folder}: {error.strerror}"
            self._is_short = not self._group.all(not problem)
        if self._is_short:
            for slot in self._slots[number:]:
                slot.remove()
            del self._slots[number:]
            neighbours.every = 1
        if problem:
            log.warning(
                "Each snapshot waits for the neighbour, so they are taken less often: %s. Give the replicas more "
                "memory.",
                problem,
            )

    def _lacks(self, folder: Path, one: int, count: int, old: Sequence[Path] = (), unneeded: int = 0) -> str:
        """Return, in words, that the replica has no room for so many files of this size for each rank; "" if it has.

        `old`: files of which they may take over the pages. `unneeded`: so many of them are useful and no more. These
        must leave as much as they take: a training may come to need more, and they are no reason for the kernel to end
        it.
        """
        new = count - sum(abs(path.stat().st_size - one) < _ROOM for path in old)
        left = max(0, new - count + unneeded) if unneeded else 0
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

    def _slot(self, number: int, tensors: Mapping[str, Tensor], room: int) -> SnapshotSlot:
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
        return SnapshotSlot(path, owner, tensors, room, heir_to=heir_to, cuts=self._cuts)

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
            self._able = False
        return self._able


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
