"""Which attempt went on from which step: it tells a snapshot on the training's way from one of a branch given up.

    <folder>/lineage.json      {"job": uid, "resumed": {"1": 0, "2": 40}}

A pod may come back with a snapshot of step 50 of attempt 1, after attempt 2 has gone on from step 40: steps 41 to 50
of attempt 1 never happened. Written before the first step of each attempt, by `resume.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainmaster.wire.files import NOT_WRITTEN_BY_US, read_bounded
from trainmaster.wire.lineage import LINEAGE as _FILE
from trainmaster.wire.lineage import MOST_BYTES, parse

from trainmaster_trainer.checkpoint.layout import Objects, write_file
from trainmaster_trainer.settings import Settings


class Origin(Protocol):
    """Where a checkpoint comes from, as its manifest says."""

    @property
    def job(self) -> str:
        """Uid of the job that saved it."""

    @property
    def attempt(self) -> int:
        """Which attempt of it."""

    @property
    def step(self) -> int:
        """After which step."""


@dataclass(frozen=True)
class Lineage:
    """The step that each attempt went on from."""

    resumed: dict[int, int] = field(default_factory=dict)

    def holds(self, attempt: int, step: int) -> bool:
        """Whether the state after `step` of `attempt` is a past of the newest attempt."""
        return all(step <= resumed for later, resumed in self.resumed.items() if later > attempt)

    def trusting(self, job: str) -> Callable[[Origin], bool]:
        """Whether a checkpoint is none of a branch that this job gave up; another job's branches are not known."""
        return lambda origin: origin.job != job or self.holds(origin.attempt, origin.step)

    @property
    def begun(self) -> int:
        """The step that the job itself began at: 0, or that of another job's checkpoint (`resumeFrom`)."""
        return min(self.resumed.values(), default=0)

    def with_attempt(self, attempt: int, step: int) -> Lineage:
        """`attempt` goes on from `step`. What any later snapshot must not be beyond is all that is kept."""
        kept = {other: resumed for other, resumed in self.resumed.items() if other < attempt and resumed < step}
        return Lineage({**kept, attempt: step})

    @staticmethod
    def merged(lineages: Iterable[Lineage]) -> Lineage:
        """What several folders know together."""
        found: dict[int, int] = {}
        for lineage in lineages:
            for attempt, resumed in lineage.resumed.items():
                found[attempt] = min(resumed, found.get(attempt, resumed))
        return Lineage(found)


def read(folder: Path, job: str | None, remote: Objects | None = None) -> Lineage:
    """What a folder, or the object store, knows of a job (None: of whichever); nothing where it is rubbish.

    Raises:
        OSError: it cannot be read now. Branches that were given up must not count for that.
    """
    whose, lineage = _read(folder, remote)
    return lineage if job in (None, whose) else Lineage()


def trusting(lineage: Lineage, settings: Settings) -> Callable[[Origin], bool]:
    """Whether a checkpoint is none of a branch that this job gave up, nor one that it is told to doubt."""
    holds = lineage.trusting(settings.job_uid)
    return lambda origin: holds(origin) and not settings.doubts(origin.attempt, origin.step)


def trusting_owner(folder: Path) -> Callable[[Origin], bool]:
    """Whether a checkpoint in this folder is none of a branch that the job whose folder it is gave up.

    Raises:
        OSError: it cannot be read now.
    """
    owner, lineage = _read(folder, None)
    return lineage.trusting(owner)


def _read(folder: Path, remote: Objects | None) -> tuple[str, Lineage]:
    """Whose it is, and what it says."""
    try:
        text = remote.get(_FILE) if remote else read_bounded(folder / _FILE, MOST_BYTES)
        job, resumed = parse((text or b"")[:MOST_BYTES])
    except OSError as error:
        if error.errno not in NOT_WRITTEN_BY_US:
            raise
        return "", Lineage()
    except ValueError:
        return "", Lineage()
    return job, Lineage(resumed)


def write(folder: Path, job: str, lineage: Lineage, remote: Objects | None = None) -> None:
    """Replace it. A copy of what is in an object store lies in the folder, where `trainmaster audit` looks."""
    text = json.dumps({"job": job, "resumed": lineage.resumed}).encode()
    if remote:
        remote.put(_FILE, text)
    with suppress(OSError) if remote else nullcontext():
        write_file(folder / _FILE, text)
