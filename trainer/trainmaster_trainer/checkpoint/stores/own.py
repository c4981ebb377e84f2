"""OwnStore holds what the places of a job's own checkpoints have in common: the fence, the lineage, a folder here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainmaster.wire.files import make_folder
from typing_extensions import override

from trainmaster_trainer.checkpoint import layout, lineage
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.remote import Remote
from trainmaster_trainer.checkpoint.retention import Retention
from trainmaster_trainer.checkpoint.stores.store import Store
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


class OwnStore(Store):
    """OwnStore writes each shard into a folder of this machine first."""

    shared = True
    writes = True

    def __init__(self, settings: Settings, group: Group, remote: Remote | None = None) -> None:
        self.commits = group.is_first
        self._settings, self._group, self._objects = settings, group, remote
        self._folder = settings.checkpoints
        self._part = group.rank, group.world_size  # of each checkpoint: the one that this rank writes, of so many
        self._retention = Retention(settings, remote)
        self._fence = layout.Fence(self._folder, settings.job_uid, settings.attempt, remote)

    @property
    @override
    def over(self) -> Exception | None:
        return self._fence.over

    @contextmanager
    @override
    def begin(self, step: int) -> Iterator[Path]:
        temporary = layout.saving_folder(self._folder, step, self._settings.run_key)
        make_folder(temporary)
        yield temporary / layout.shard_name(*self._part)
        layout.sync_folder(temporary)

    @override
    def lineage(self) -> Lineage:
        return lineage.read(self._folder, self._settings.job_uid, self._objects)

    @override
    def go_on(self, way: Lineage) -> None:
        if self.commits:
            lineage.write(self._folder, self._settings.job_uid, way, self._objects)
