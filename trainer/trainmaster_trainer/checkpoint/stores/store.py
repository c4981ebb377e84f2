"""Store is where the checkpoints of a job lie, as one rank sees it: `save.py` writes through it.

A folder that all share (`folder.py`), one of each replica (`private.py`), an object store (`objects.py`). Which ranks
write, and which of them commits, is the store's to know.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from trainmaster_trainer.checkpoint.copier import TornCopyError
from trainmaster_trainer.checkpoint.manifest import Manifest
from trainmaster_trainer.errors import ConfigurationError

log = logging.getLogger(__name__)


class Store(Protocol):
    """Store keeps the checkpoints of one attempt."""

    shared: bool  # all ranks write one checkpoint together; else the first rank of each replica writes its own
    writes: bool  # this rank writes a part of each checkpoint
    commits: bool  # this rank makes checkpoints visible

    @property
    def over(self) -> Exception | None:
        """Return why this process may not write any more: a later attempt, or another job. None if it may."""

    def fence(self) -> None:
        """Clear what dead attempts left, and shut older attempts out."""

    def begin(self, step: int) -> AbstractContextManager[Path]:
        """Give the path for this rank's shard. At the end the file is safe, and still no checkpoint."""

    def commit(self, step: int, manifest: Manifest) -> bool:
        """Make the checkpoint visible, on one rank after all have written. Return False where a good one stood already.

        Raises:
            SupersededError, PlaceTakenError: a later attempt has begun, or another job here; nothing becomes visible.
        """

    def prune(self, step: int, *, failed: bool) -> None:
        """Delete old checkpoints after a save, or what a `failed` one left. Every rank that writes calls it at last.

        It raises nothing: what goes wrong is logged, and the checkpoint of `step` stands.
        """


def problem_of(error: Exception, rank: int) -> str:
    """Return what went wrong with a save, in words."""
    kind = "" if isinstance(error, OSError | ConfigurationError | TornCopyError) else f"{type(error).__name__}: "
    return f"rank {rank}: {kind}{error}"


@contextmanager
def only_telling(what: str, rank: int) -> Iterator[None]:
    """Log what goes wrong within, and no more."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (whatever it was)
        log.warning("%s: %s", what, problem_of(error, rank))


STANDS = "The checkpoint of step {step} stands; after it"
