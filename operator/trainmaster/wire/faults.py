"""Faults that a local run is asked to suffer: `kill:worker/1@step=50`, and how the rank concerned is told.

Written by local/faults.py, carried out by the trainer in the very step. One empty file per fault, named by what it
says; the rank that carries it out renames it first, so that each comes once, whatever restarts it causes.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional

from trainmaster.wire import names

KILL = "kill"  # SIGKILL to the rank
STOP = "stop"  # SIGSTOP: it lives, and does nothing any more
OOM = "oom"  # it allocates until a limit of its own address space says no, and dies of that
SLOW = "slow"  # from now on each of its steps takes three times as long, until the ranks are started again
CORRUPT_CHECKPOINT = "corrupt-checkpoint"  # one byte of the newest checkpoint is changed; its result: the step of that
OF_A_RANK = (KILL, STOP, OOM, SLOW)
KINDS = (*OF_A_RANK, CORRUPT_CHECKPOINT)
_DONE = ".done"


@dataclass(frozen=True)
class Fault:
    """What happens to the first rank of a replica when it has ended `step`."""

    kind: str
    step: int
    role: str = names.WORKER
    index: int = 0
    number: int = 0  # its place among the faults of a run

    def __str__(self) -> str:
        """As on the command line."""
        where = "" if self.kind == CORRUPT_CHECKPOINT else f":{self.role}/{self.index}"
        return f"{self.kind}{where}@step={self.step}"

    def path(self, folder: Path) -> Path:
        """The file that stands for it until it has come."""
        return folder / f"{self.number}.{self.kind}.{self.role}.{self.index}.{self.step}"

    def done(self, folder: Path) -> Path:
        """The file that stands for it afterwards; its time of change is when it came."""
        path = self.path(folder)
        return path.with_name(path.name + _DONE)

    def result(self, folder: Path) -> str:
        """What came of it, where that is not plain from its kind; nothing if it came to nothing."""
        return self.done(folder).read_text(encoding="ascii")


def pending(folder: Path) -> Iterator[Fault]:
    """The faults that have not come yet."""
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        fault = _read(path.name)
        if fault is not None:
            yield fault


def claim(fault: Fault, folder: Path, result: str = "") -> bool:
    """Whether it is for the caller to carry it out: true once. `result`: of one that was tried before it is claimed."""
    with contextlib.suppress(OSError):
        if result:
            fault.path(folder).write_text(result, encoding="ascii")
        fault.path(folder).rename(fault.done(folder))
        fault.done(folder).touch()
        return True
    return False


def _read(name: str) -> Optional[Fault]:
    parts = name.split(".")
    if len(parts) != 5 or parts[1] not in KINDS:  # noqa: PLR2004 as `path` writes it
        return None
    number, kind, role, index, step = parts
    return Fault(kind, int(step), role, int(index), int(number))
