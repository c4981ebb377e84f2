"""Folder keeps checkpoints in a folder that all ranks reach, or that one process alone has."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from trainmaster_trainer.checkpoint import layout, load
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import ROOM_FOR_OTHERS, LoadedCheckpoint, read
from trainmaster_trainer.checkpoint.manifest_check import Manifest, glance
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.retention import bests_of
from trainmaster_trainer.checkpoint.state import Shapes, State
from trainmaster_trainer.checkpoint.stores.own import OwnStore
from trainmaster_trainer.checkpoint.stores.save_problems import STANDS, only_telling
from trainmaster_trainer.checkpoint.stores.store import Checkpoints, Row, Told
from trainmaster_trainer.checkpoint.unusable import none_is_good
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)


@dataclass
class FolderSource(Checkpoints):
    """FolderSource reads checkpoints of a folder that all ranks reach: one of them looks, all read."""

    _settings: Settings
    _group: Group
    _folder: Path
    looks: bool
    _expected: Shapes | None = None
    _below: int | None = None  # candidates of this step and later ones are passed over
    _mine: LoadedCheckpoint | None = None

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        """Return the step of the newest checkpoint that this rank, which looks, finds good."""
        self._expected = outline.model_shapes()
        if self.looks:
            self._mine = load.newest(self._folder, self._expected, self._below, way.trusts)
        if self._mine is None:
            self._below = None
            return []
        return [[self._mine.manifest.step]]

    @override
    def bring(self, newest: Row, told: Told) -> LoadedCheckpoint | None:
        """Read it on every rank."""
        step, loaded, self._mine = int(newest[0]), self._mine, None
        if loaded is None:
            try:
                loaded = read(self._folder, step, self._expected)
            except CorruptCheckpointError as bad:
                log.warning("Checkpoint of step %d: %s.", step, bad)
        lacking = sum(self._group.gather(loaded is None))
        self._below = step if lacking else None
        if not lacking:
            return loaded
        log.warning(
            "Checkpoint of step %d is bad for %d of %d ranks, trying the one before.",
            step, lacking, self._group.world_size,
        )  # fmt: skip
        return None


class Folder(FolderSource, OwnStore):
    """Folder is a store: every rank writes its shard into one folder, which rank 0 gives its name."""

    def __init__(self, settings: Settings, group: Group) -> None:
        OwnStore.__init__(self, settings, group)
        FolderSource.__init__(self, settings, group, settings.checkpoints, looks=self.commits)

    @override
    def fence(self) -> None:
        """Make the folder, clear it of what dead attempts left, and shut older attempts out."""
        if self.commits:
            self._folder.mkdir(parents=True, exist_ok=True)
            layout.clean(self._folder)
            self._fence.close()

    @override
    def commit(self, step: int, manifest: Manifest) -> None:
        """Give the folder its final name, in place of what an attempt before has saved of the same step."""
        self._retention.bests = bests_of(manifest.scalars)
        temporary = layout.saving_folder(self._folder, step, self._settings.run_key)
        layout.write_file(temporary / layout.MANIFEST, manifest.encode())
        self._fence.check_to_publish()
        layout.publish(temporary, layout.step_folder(self._folder, step))

    @override
    def prune(self, step: int, *, failed: bool) -> None:
        """Delete surplus checkpoints, or the folder of a failed save: it takes the room that the next one needs."""
        if not self.commits:
            return
        if failed:
            with suppress(OSError):
                layout.remove(layout.saving_folder(self._folder, step, self._settings.run_key))
            return
        with only_telling(STANDS.format(step=step), self._settings.rank):
            self._retention.prune_folder(step)

    @override
    def newest_step(self, way: Lineage) -> int:
        """Return the newest step whose manifest is whole."""
        return load.newest_step(self._folder, way.trusts) if self.commits else -1

    @override
    def why_none(self, way: Lineage) -> str:
        """Return why none of the checkpoints can be used; "" if there are none that it may go on from."""
        bad, before = [], self._settings.resume_before
        for step in layout.saved_steps(self._folder) if self.commits else ():
            if before is None or step < before:
                seen = glance(layout.step_folder(self._folder, step), step)
                if seen is None or way.trusts(seen):  # of no branch that is known to have been given up
                    bad.append(step)
        if not bad:
            return ""
        reason = "not good for all ranks"
        try:
            manifest = load.look_at(self._folder, bad[0])
            if sum(shard.length for shard in manifest.shards) > ROOM_FOR_OTHERS:
                reason = "not good for this model, or not for all ranks"  # to find out more would take long
            else:
                read(self._folder, bad[0])
        except CorruptCheckpointError as error:
            reason = str(error)
        return none_is_good([layout.step_folder(self._folder, step).name for step in bad], str(self._folder), reason)

    @override
    def bring_lines(self, step: int, holder: int, durable: int, way: Lineage) -> None:
        """Do nothing: the metrics are in this folder."""
