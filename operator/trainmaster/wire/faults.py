"""Define faults that a local run is asked to inject: `kill:worker/1@step=50`, and how the rank gets them.

local/fault_option.py writes one empty file per fault, named by its content. The trainer carries it out in that step;
the rank renames the file first, so that each fault happens once, even if it causes restarts.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional

from trainmaster.wire import names

KILL = "kill"  # SIGKILL to the rank
STOP = "stop"  # SIGSTOP to the rank: it lives, and does nothing any more
OOM = "oom"  # the rank allocates up to a limit of its address space, and dies
SLOW = "slow"  # each step of the rank takes three times as long, until the ranks are started again
CORRUPT_CHECKPOINT = "corrupt-checkpoint"  # one byte of the newest checkpoint is changed; its result: the step of that
OF_A_RANK = (KILL, STOP, OOM, SLOW)
KINDS = (*OF_A_RANK, CORRUPT_CHECKPOINT)
_DONE = ".done"


@dataclass(frozen=True)
class Fault:
    """Hold what happens to the first rank of a replica when it has ended `step`."""

    kind: str
    step: int
    role: str = names.WORKER
    index: int = 0
    number: int = 0  # its place among the faults of a run

    def __str__(self) -> str:
        """Return the fault as on the command line."""
        where = "" if self.kind == CORRUPT_CHECKPOINT else f":{self.role}/{self.index}"
        return f"{self.kind}{where}@step={self.step}"

    def path(self, folder: Path) -> Path:
        """Return the file that stands for the fault until it has happened."""
        return folder / f"{self.number}.{self.kind}.{self.role}.{self.index}.{self.step}"

    def done(self, folder: Path) -> Path:
        """Return the file that stands for the fault afterwards; its modification time is when it happened."""
        path = self.path(folder)
        return path.with_name(path.name + _DONE)

    def result(self, folder: Path) -> str:
        """Return the result of the fault, where its kind does not imply it; empty if nothing came of it."""
        return self.done(folder).read_text(encoding="ascii")


def pending(folder: Path) -> Iterator[Fault]:
    """Yield the faults that have not happened yet."""
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        fault = _read(path.name)
        if fault is not None:
            yield fault


def claim(fault: Fault, folder: Path, result: str = "") -> bool:
    """Claim the fault: return True once, to the caller who carries it out. `result`: of one tried before the claim."""
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
