"""ObjectStore keeps checkpoints in an object store (`remote.py`); a replica's folder is where they pass through."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainmaster.wire.files import make_folder

from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.committer import Committer
from trainmaster_trainer.checkpoint.manifest import Manifest
from trainmaster_trainer.checkpoint.remote import Remote
from trainmaster_trainer.checkpoint.retention import Retention, bests_of
from trainmaster_trainer.checkpoint.stores.store import STANDS, only_telling
from trainmaster_trainer.errors import PlaceTakenError, SupersededError
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)


class ObjectStore:
    """ObjectStore is a store: every rank puts its shard, and rank 0 the manifest."""

    shared = True
    writes = True

    def __init__(self, settings: Settings, group: Group, remote: Remote) -> None:
        self.commits = group.is_first
        self._tidies = group.local_rank == 0  # its pod has a folder of its own
        self._shard = layout.shard_name(group.rank, group.world_size)
        self._settings = settings
        self._folder = settings.checkpoints
        self._remote = remote
        self._retention = Retention(settings, remote)
        self._committer = Committer(settings, remote, self._retention)
        self._fence = layout.Fence(self._folder, settings.job_uid, settings.attempt, remote)

    def fence(self) -> None:
        """Clear folder and store of what dead attempts left, and shut older attempts out."""
        if self.commits or self._tidies:
            self._folder.mkdir(parents=True, exist_ok=True)
            layout.clean(self._folder)
        if self.commits:
            self._remote.clean()
            self._fence.close()

    @property
    def over(self) -> Exception | None:
        """Return why this process may not write any more."""
        return self._fence.over

    def _key(self, step: int) -> str:
        return f"step-{step:08d}.{self._settings.run_key}"

    def _temporary(self, step: int) -> Path:
        return layout.saving_folder(self._folder, step, self._settings.run_key)

    @contextmanager
    def begin(self, step: int) -> Iterator[Path]:
        """Give a file in a folder of the replica; put it at the end."""
        temporary = self._temporary(step)
        make_folder(temporary)
        path = temporary / self._shard
        yield path
        layout.sync_folder(temporary)
        self._remote.put_file(path, f"{self._key(step)}/{path.name}")
        path.unlink()

    def commit(self, step: int, manifest: Manifest) -> bool:
        """Put the manifest: that makes it a checkpoint. A copy of it stays here, where the agent looks."""
        self._retention.bests = bests_of(manifest.scalars)
        try:
            self._fence.check_to_publish()
        except (SupersededError, PlaceTakenError, OSError):
            self._committer.remove(self._key(step))
            raise
        self._committer.commit(self._key(step), step, manifest.encode())
        with only_telling(STANDS.format(step=step), self._settings.rank):
            here = layout.step_folder(self._folder, step)
            make_folder(here)
            layout.write_file(here / layout.MANIFEST, manifest.encode())
        return True

    def prune(self, step: int, *, failed: bool) -> None:
        """Delete surplus checkpoints, or what a failed save has put: it takes the room that the next one needs."""
        if self._tidies:
            with suppress(OSError):
                layout.remove(self._temporary(step))
        if self.commits and failed:
            with (
                only_telling(f"What the save of step {step} left could not be deleted", self._settings.rank),
                suppress(SupersededError, PlaceTakenError),
            ):
                self._fence.check()
                self._committer.tidy(failed=self._key(step))
        elif self.commits:
            with only_telling(STANDS.format(step=step), self._settings.rank):
                self._retention.prune_folder(step)
            with only_telling(STANDS.format(step=step), self._settings.rank):
                self._committer.tidy()
