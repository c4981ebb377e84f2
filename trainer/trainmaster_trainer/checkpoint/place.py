"""Place makes checkpoints visible for the committer, in a folder or in an object store, and deletes old ones there.

Nothing becomes visible before it is known that no later attempt, and no other job, has begun here since (the fence).
It runs in the background thread of a save.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainmaster.wire.files import make_folder

from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.committer import Committer
from trainmaster_trainer.checkpoint.copier import TornCopyError
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.checkpoint.manifest import Manifest
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import open_remote
from trainmaster_trainer.checkpoint.retention import Retention, bests_of
from trainmaster_trainer.errors import ConfigurationError, PlaceTakenError, SupersededError
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)


def problem_of(error: Exception, rank: int) -> str:
    """Return what went wrong with a save, in words."""
    kind = "" if isinstance(error, OSError | ConfigurationError | TornCopyError) else f"{type(error).__name__}: "
    return f"rank {rank}: {kind}{error}"


class Place:
    """Place holds the checkpoints of one attempt, as one rank commits them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.checkpoints
        self._remote = open_remote(settings)
        self._retention = Retention(settings, self._remote)
        self._committer = Committer(settings, self._remote, self._retention) if self._remote else None
        self._fence = layout.Fence(self._folder, settings.job_uid, settings.attempt, self._remote)
        self.published: Manifest | None = None  # the last one; not where a good checkpoint of its step stood already
        self.over: Exception | None = None  # why this process may not write any more

    @property
    def is_remote(self) -> bool:
        """Return whether checkpoints go to an object store."""
        return self._remote is not None

    def take(self) -> None:
        """Clear the object store of what dead attempts left, and shut older attempts out."""
        if self._remote:
            self._remote.clean()
        self._fence.close()

    def temporary(self, step: int) -> Path:
        """Return the folder in which the checkpoint of a step is made."""
        return layout.saving_folder(self._folder, step, self._settings.run_key)

    def upload(self, path: Path, step: int) -> None:
        """Copy a shard to the object store, if there is one."""
        if self._remote:
            self._remote.put_file(path, f"{self._key(step)}/{path.name}")
            path.unlink()

    def publish(self, step: int, manifest: Manifest) -> str:
        """Make the checkpoint visible. Return what stands in the way, or ""."""
        self._retention.bests = bests_of(manifest.scalars)
        if self._committer:
            return self._publish_remotely(self._committer, step, manifest)
        temporary = self.temporary(step)
        layout.write_file(temporary / layout.MANIFEST, manifest.encode())
        if problem := self._shut_out():
            layout.remove(temporary)
            return problem
        if self._has_good(step, manifest):
            layout.remove(temporary)  # the same step of an earlier attempt: first come, first kept
        else:
            layout.publish(temporary, layout.step_folder(self._folder, step))
            self.published = manifest
        with self._after_commit(step):
            self._retention.prune_folder(step)
        return ""

    def _shut_out(self) -> str:
        """Return who may write here instead of this process, which the next `wait` ends; nothing if it may."""
        try:
            self._fence.check()
        except (SupersededError, PlaceTakenError) as error:
            self.over = error
            return str(error)
        except OSError as error:
            return f"nothing is published while it cannot be told whether a later attempt has begun: {error}"
        return ""

    @contextmanager
    def _after_commit(self, step: int) -> Iterator[None]:
        """Say what goes wrong within, and no more: the checkpoint stands."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (whatever it was)
            log.warning("The checkpoint of step %d stands; after it: %s", step, problem_of(error, self._settings.rank))

    def _has_good(self, step: int, made: Manifest) -> bool:
        """Return whether there is a good checkpoint of this step and model, not of a branch that this job gave up."""
        if not layout.step_folder(self._folder, step).exists():
            return False
        try:
            trusted = self._retention.way.trusting(self._settings.job_uid)
            read(self._folder, step, made.model_shapes(), trusted)
        except (CorruptCheckpointError, ConfigurationError):
            return False
        return True

    def _publish_remotely(self, committer: Committer, step: int, manifest: Manifest) -> str:
        """Commit to the object store. A copy of the manifest stays here, where the agent looks."""
        if problem := self._shut_out():
            committer.remove(self._key(step))
            return problem
        committer.commit(self._key(step), step, manifest.encode())
        self.published = manifest
        with self._after_commit(step):
            here = layout.step_folder(self._folder, step)
            make_folder(here)
            layout.write_file(here / layout.MANIFEST, manifest.encode())
            self._retention.prune_folder(step)
        with self._after_commit(step):
            committer.tidy()
        return ""

    def _key(self, step: int) -> str:
        return f"step-{step:08d}.{self._settings.run_key}"

    def sweep(self, step: int) -> None:
        """Delete a failed save from the object store, whose room the next save may need."""
        try:
            if self._committer and not self._shut_out():
                self._committer.tidy(failed=self._key(step))
        except Exception as error:  # noqa: BLE001 (whatever it was: the next save tries again)
            problem = problem_of(error, self._settings.rank)
            log.warning("What the save of step %d left could not be deleted: %s", step, problem)
