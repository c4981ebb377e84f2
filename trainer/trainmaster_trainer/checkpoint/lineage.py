"""Lineage says which attempt went on from which step, so that snapshots of a branch that was given up are known.

    <folder>/lineage.json      {"job": uid, "resumed": {"1": 0, "2": 40}}

A pod may come back with a snapshot of step 50 of attempt 1, after attempt 2 has gone on from step 40: steps 41 to 50
of attempt 1 never happened. `resume.py` writes it before the first step of each attempt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from trainmaster.wire.files import NOT_WRITTEN_BY_US, read_bounded
from trainmaster.wire.lineage_file import LINEAGE as _FILE
from trainmaster.wire.lineage_file import MOST_BYTES, parse

from trainmaster_trainer.checkpoint.layout import NamedObjects, write_file
from trainmaster_trainer.settings import Settings


class Origin(Protocol):
    """Origin is where a checkpoint comes from, as its manifest says."""

    @property
    def job(self) -> str:
        """Return the uid of the job that saved it."""

    @property
    def attempt(self) -> int:
        """Return the attempt that saved it."""

    @property
    def step(self) -> int:
        """Return the step after which it was saved."""


@dataclass(frozen=True)
class Lineage:
    """Lineage holds the step that each attempt went on from, and what the job is told to doubt besides."""

    resumed: dict[int, int] = field(default_factory=dict)
    owner: str = field(default="", compare=False, repr=False)  # the uid of the job
    before: int | None = field(default=None, compare=False, repr=False)  # `Settings.resume_before`
    doubted: int | None = field(default=None, compare=False, repr=False)  # `Settings.doubted_attempt`

    def holds(self, attempt: int, step: int, in_memory: bool = False) -> bool:
        """Return whether the state after `step` of `attempt` is on the way to the newest attempt, and not doubted.

        What lies in memory is doubted whatever its step.
        """
        is_late = self.before is not None and (in_memory or step >= self.before)
        if is_late and (self.doubted is None or attempt <= self.doubted):
            return False
        return all(step <= resumed for later, resumed in self.resumed.items() if later > attempt)

    def trusts(self, origin: Origin) -> bool:
        """Return whether a checkpoint is not doubted, and of no branch that its owner gave up.

        Other jobs' branches are unknown.
        """
        way = self if origin.job == self.owner else replace(self, resumed={})
        return way.holds(origin.attempt, origin.step)

    @property
    def begun(self) -> int:
        """Return the step that the job itself began at: 0, or that of another job's checkpoint (`resumeFrom`)."""
        return min(self.resumed.values(), default=0)

    def with_attempt(self, attempt: int, step: int) -> Lineage:
        """Return the lineage after `attempt` has gone on from `step`, without entries that no longer limit anything."""
        kept = {other: resumed for other, resumed in self.resumed.items() if other < attempt and resumed < step}
        return Lineage({**kept, attempt: step}, self.owner)

    @staticmethod
    def merged(lineages: Iterable[Iterable[tuple[int, int]]], settings: Settings) -> Lineage:
        """Return what the lineages of several folders say together: of each its attempts and their steps."""
        found: dict[int, int] = {}
        for rows in lineages:
            for attempt, resumed in rows:
                found[attempt] = min(resumed, found.get(attempt, resumed))
        return Lineage(found, settings.job_uid, settings.resume_before, settings.doubted_attempt)


def read(folder: Path, job: str | None, remote: NamedObjects | None = None) -> Lineage:
    """Return the lineage in a folder, or in the object store, if it is of `job` (None: any); empty if it is unreadable.

    Raises:
        OSError: it cannot be read now. Branches that were given up must not count for that.
    """
    try:
        text = remote.get(_FILE, MOST_BYTES) if remote else read_bounded(folder / _FILE, MOST_BYTES)
        owner, resumed = parse(text or b"")
    except OSError as error:
        if error.errno not in NOT_WRITTEN_BY_US:
            raise
        return Lineage(owner=job or "")
    except ValueError:
        return Lineage(owner=job or "")
    return Lineage(resumed, owner) if job in (None, owner) else Lineage(owner=job or "")


def write(folder: Path, job: str, lineage: Lineage, remote: NamedObjects | None = None) -> None:
    """Replace the lineage. One in an object store is copied to the folder, where `trainmaster audit` looks."""
    text = json.dumps({"job": job, "resumed": lineage.resumed}).encode()
    if remote:
        remote.put(_FILE, text)
    with suppress(OSError) if remote else nullcontext():
        write_file(folder / _FILE, text)
