"""Store is where the checkpoints of a job lie, as one rank sees it: `save.py` writes through it, `resume.py` reads.

A folder that all share (`folder.py`), one of each replica (`private.py`), an object store (`object_store.py`). From the
memory of a replica (`replica_memory.py`) and from another job (`foreign.py`) one can only go on: they are sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint
from trainmaster_trainer.checkpoint.manifest_check import Manifest
from trainmaster_trainer.checkpoint.state import State

Found_co = TypeVar("Found_co", covariant=True)
Row = Sequence[Any]  # a candidate, as ranks tell each other of it; the first number is its step
Told = Sequence[Sequence[Row]]  # the candidates of every rank, in the order of ranks


class Source(Protocol[Found_co]):
    """Source is where a resume may find a state. `first_good` of `resume.py` asks it, on all ranks together.

    What was passed over counts until a state is found or there is none: there may be one more resume.
    """

    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        """Return what this rank sees on the training's way and has not passed over, newest first, for a like state."""

    def bring(self, newest: Row, told: Told) -> Found_co | None:
        """Give this rank the newest candidate that all can have, verified. `newest`: the newest of any rank.

        None on all ranks, if one of them finds it bad: then it is passed over.
        """


class Checkpoints(Source[LoadedCheckpoint], Protocol):
    """Checkpoints is a source of checkpoints, of this job or another: a training does not begin anew over bad ones."""

    def why_none(self, way: Lineage) -> str:
        """Return why none of what is there can be used; "" if there is nothing. Rank 0 knows, and who looks."""


class Store(Checkpoints, Protocol):
    """Store keeps the checkpoints of one attempt."""

    shared: bool  # all ranks write one checkpoint together; else the first rank of each replica writes its own
    writes: bool  # this rank writes a part of each checkpoint
    commits: bool  # this rank makes checkpoints visible, and looks which there are

    @property
    def over(self) -> Exception | None:
        """Return why this process may not write any more: a later attempt, or another job. None if it may."""

    def fence(self) -> None:
        """Clear what dead attempts left, and shut older attempts out."""

    def begin(self, step: int) -> AbstractContextManager[Path]:
        """Give the path for this rank's shard. At the end the file is safe, and still no checkpoint."""

    def commit(self, step: int, manifest: Manifest) -> None:
        """Make the checkpoint visible, on one rank after all have written, in place of an older one of this step.

        Raises:
            SupersededError, PlaceTakenError: a later attempt has begun, or another job here; nothing becomes visible.
        """

    def prune(self, step: int, *, failed: bool) -> None:
        """Delete old checkpoints after a save, or what a `failed` one left. All ranks call it; problems are logged."""

    def lineage(self) -> Lineage:
        """Return from which step each attempt has gone on."""

    def go_on(self, way: Lineage) -> None:
        """Write the lineage, if this rank commits."""

    def newest_step(self, way: Lineage) -> int:
        """Return the newest step whose manifest is whole; 0: there is none, -1: this rank does not look."""

    def bring_lines(self, step: int, holder: int, durable: int, way: Lineage) -> None:
        """Complete the metrics up to `step`, which rank `holder` has in memory; checkpoints reach to step `durable`."""
