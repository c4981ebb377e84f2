"""Folder keeps checkpoints in a folder that all ranks reach, or that one process alone has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainmaster.wire.files import make_folder

from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.checkpoint.manifest import Manifest
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.retention import Retention, bests_of
from trainmaster_trainer.checkpoint.stores.store import STANDS, only_telling
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


class Folder:
    """Folder is a store: every rank writes its shard into one folder, which rank 0 gives its name."""

    shared = True

    def __init__(self, settings: Settings, group: Group) -> None:
        self.writes = True
        self.commits = group.is_first
        self._shard = layout.shard_name(group.rank, group.world_size)
        self._settings = settings
        self._folder = settings.checkpoints
        self._retention = Retention(settings, None)
        self._fence = layout.Fence(self._folder, settings.job_uid, settings.attempt)

    def fence(self) -> None:
        """Make the folder, clear it of what dead attempts left, and shut older attempts out."""
        if self.commits:
            self._folder.mkdir(parents=True, exist_ok=True)
            layout.clean(self._folder)
            self._fence.close()

    @property
    def over(self) -> Exception | None:
        """Return why this process may not write any more."""
        return self._fence.over

    def _temporary(self, step: int) -> Path:
        return layout.saving_folder(self._folder, step, self._settings.run_key)

    @contextmanager
    def begin(self, step: int) -> Iterator[Path]:
        """Give a file in the folder that will be the checkpoint, under its temporary name."""
        temporary = self._temporary(step)
        make_folder(temporary)
        yield temporary / self._shard
        layout.sync_folder(temporary)

    def commit(self, step: int, manifest: Manifest) -> bool:
        """Give the folder its final name, unless an attempt before has saved a good checkpoint of the same step."""
        self._retention.bests = bests_of(manifest.scalars)
        temporary = self._temporary(step)
        layout.write_file(temporary / layout.MANIFEST, manifest.encode())
        self._fence.check_to_publish()
        if self._has_good(step, manifest):
            layout.remove(temporary)
            return False
        layout.publish(temporary, layout.step_folder(self._folder, step))
        return True

    def _has_good(self, step: int, made: Manifest) -> bool:
        """Return whether there is a good checkpoint of this step and model, not of a branch that this job gave up."""
        if not layout.step_folder(self._folder, step).exists():
            return False
        try:
            read(self._folder, step, made.model_shapes(), self._retention.way.trusting(self._settings.job_uid))
        except (CorruptCheckpointError, ConfigurationError):
            return False
        return True

    def prune(self, step: int, *, failed: bool) -> None:
        """Delete surplus checkpoints, or the folder of a failed save: it takes the room that the next one needs."""
        if not self.commits:
            return
        if failed:
            with suppress(OSError):
                layout.remove(self._temporary(step))
            return
        with only_telling(STANDS.format(step=step), self._settings.rank):
            self._retention.prune_folder(step)
