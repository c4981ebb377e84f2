"""Foreign is a source of another job's checkpoints (`spec.checkpoint.resumeFrom`), which that job may be pruning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from trainmaster_trainer.checkpoint import fetch, lineage
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint, Trusted, newest_step, read
from trainmaster_trainer.checkpoint.other_jobs import FIELD, source_of
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import Remote, SavedCheckpoint
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores.folder import FolderSource
from trainmaster_trainer.checkpoint.stores.object_store import ObjectSource
from trainmaster_trainer.checkpoint.stores.store import Row, Source, Told
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


class ForeignFolder(FolderSource):
    """ForeignFolder looks once more where all are bad, as that job may have saved and pruned meanwhile."""

    _seen: int | None = None

    @override
    def trusted(self, way: Lineage) -> Trusted:
        return lineage.trusting_owner(self._folder)

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        if self._seen is None and self._looks:
            self._seen = newest_step(self._folder, self.trusted(way))
        rows = super().candidates(outline, way)
        while not rows and self._looks and (now := newest_step(self._folder, self.trusted(way))) != self._seen:
            self._seen, self._below = now, None
            rows = super().candidates(outline, way)
        return rows


class ForeignStep(FolderSource):
    """ForeignStep is the one checkpoint of a folder that `resumeFrom.step` names."""

    problem = ""  # why it cannot be used

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        self._expected = outline.model_shapes()
        return [[self._settings.plan.resume_step]] if self._looks and self._below is None else []

    @override
    def bring(self, chosen: Row, told: Told) -> LoadedCheckpoint | None:
        loaded = None
        try:
            loaded = read(self._folder, int(chosen[0]), self._expected, lineage.trusting_owner(self._folder))
        except CorruptCheckpointError as bad:
            self.problem = str(bad)
        self._below = int(chosen[0])
        problems = [text for text in self._group.gather(self.problem) if text]
        self.problem = problems[0] if problems else ""
        return None if problems else loaded


class ForeignObjects(ObjectSource):
    """ForeignObjects looks once more likewise, in an object store."""

    @override
    def look(self, way: Lineage) -> list[SavedCheckpoint]:
        theirs, wanted = lineage.read(self._settings.checkpoints, None, self._remote), self._settings.plan.resume_step
        return [one for one in fetch.on_the_way(self._remote, theirs) if wanted in (None, one.step)]

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        rows = super().candidates(outline, way)
        if not rows and self._group.is_first:
            now = self.look(way)
            if [one.name for one in now] != self._seen:
                self._left = None
                rows = super().candidates(outline, way)
        return rows


def open_foreign(settings: Settings, group: Group) -> tuple[str, Source[LoadedCheckpoint]]:
    """Return where `resumeFrom` points to, and the source. All ranks call it together.

    Raises:
        ConfigurationError: there is no checkpoint of such a job.
    """
    found = ("", "")
    if group.is_first:
        try:
            found = source_of(settings), ""
        except ConfigurationError as error:
            found = "", str(error)  # raised on all ranks: none may wait for the others
    where, problem = group.broadcast(found)
    if problem:
        raise ConfigurationError(problem)
    if "://" in where:
        return where, ForeignObjects(
            settings, group, Remote(where, settings.plan.checkpoint_endpoint, FIELD), home=None
        )
    kind = ForeignFolder if settings.plan.resume_step is None else ForeignStep
    return where, kind(settings, group, Path(where), looks=group.is_first)
