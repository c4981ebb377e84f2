"""Let the next replica keep a copy of each rank's snapshots, where a rank has a part of the model and no other has it.

A rank sends the file of its snapshot, as it lies in memory, to the rank of the same local number in the next replica,
which keeps the newest two beside its own snapshots, under the same mark: what a kill leaves half-copied counts for
nothing. A replica that is lost gets them back (`rejoin.py`), and no step is lost with it, but for those that two
neighbours had which are lost together.

A copy takes longer than the snapshot itself, so it may come more seldom: both together cost at most 3 %. The snapshot
that was copied last is kept until there is a newer copy on all ranks, as all go on from the same step.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainmaster_trainer.checkpoint.passing import Passing
from trainmaster_trainer.checkpoint.slot import MARK, PAGE, SnapshotSlot, open_page
from trainmaster_trainer.group import Group

COPIES = 2
_PIECE = 1 << 26  # bytes that are sent at once


class SlotCopies(Passing):
    """SlotCopies gives this rank's snapshots to the next replica, and keeps those of the one before it.

    `name`: of the file of a rank's slot, by its rank and number.
    """

    def __init__(self, group: Group, name: Callable[[int, int], Path]) -> None:
        super().__init__(group)
        self._name = name
        self.heirlooms: list[Path] = []  # older copies that new ones may take over, the least worth first
        self._pages: dict[int, mmap.mmap] = {}
        self._kept = 0
        self.problem = ""  # why this rank has not got it
        self.lacking = False  # whether any rank has not

    def keep(self, step: int, slot: SnapshotSlot, on: bool) -> bool:
        """Give the snapshot of this step to the next replica, if that is due. All ranks call it together.

        `on`: whether this rank has taken it. Return whether all have, as far as it was asked now: ranks wait for one
        another when a copy is due, and else not.
        """
        if not self.due(step):
            return True
        began = time.perf_counter()
        sent = send(slot.file, self._after, self._group)
        self.problem = receive(self.before, self._group, self._open)
        for one in sent:
            one.wait()
        self._kept += 1
        seconds = time.perf_counter() - began if self._kept > COPIES else None  # the first ones make their pages
        off, self.lacking = self._agree(step, seconds, not on, bool(self.problem))
        if off or self.lacking or self._kept == COPIES:
            self._drop_old()
        return not off

    def _open(self, length: int) -> mmap.mmap:
        """Return where the next copy goes."""
        number = self._kept % COPIES
        page = self._pages.get(number)
        if page is None or len(page) != length:
            path = self._name(self.before, number)
            path.unlink(missing_ok=True)
            heir_to = self.heirlooms.pop(0) if self.heirlooms else None
            page, is_heir = open_page(path, length, heir_to)
            page[MARK] = bytes(8)
            if heir_to and is_heir:
                heir_to.rename(path)
            elif heir_to:
                self.heirlooms.append(heir_to)
            self._pages[number] = page
        return page

    def _drop_old(self) -> None:
        for path in self.heirlooms:
            path.unlink(missing_ok=True)
        self.heirlooms = []

    def remove(self) -> None:
        """Delete all copies that this rank keeps."""
        self._drop_old()
        for number in range(COPIES):
            self._name(self.before, number).unlink(missing_ok=True)


def send(file: Tensor, to: int, group: Group) -> list[Any]:
    """Begin to send the bytes of a snapshot's file to another rank, its first page last."""
    parts = [torch.tensor([file.numel()]), *torch.split(file[PAGE:], _PIECE), file[:PAGE]]
    return [dist.isend(part, to, group.processes) for part in parts]


def receive(source: int, group: Group, make: Callable[[int], mmap.mmap]) -> str:
    """Receive a snapshot's file, into what `make` returns for its length. Return why it is not there, or ""."""
    told = torch.zeros(1, dtype=torch.int64)
    dist.recv(told, source, group.processes)
    length, problem = int(told[0]), ""
    try:
        page = make(length)
        page[MARK] = bytes(8)
        parts = torch.split(torch.frombuffer(page, dtype=torch.uint8)[PAGE:], _PIECE)
    except OSError as error:
        problem = f"{length >> 20} MiB in memory: {error.strerror}"
        waste = torch.empty(min(length, _PIECE), dtype=torch.uint8)  # the sender has begun
        parts = tuple(waste[: length - begin] for begin in range(PAGE, length, _PIECE))
    head = torch.empty(PAGE, dtype=torch.uint8)
    for part in (*parts, head):
        dist.recv(part, source, group.processes)
    if not problem:
        text = head.numpy().tobytes()
        page[:PAGE] = text[: MARK.start] + bytes(MARK.stop - MARK.start) + text[MARK.stop :]
        page[MARK] = text[MARK]
    return problem
