"""Foreign is a source of another job's checkpoints (`spec.checkpoint.resumeFrom`), which that job may be pruning.

One rank finds where they are, when it is asked for candidates. It tells the others so with each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from trainmaster_trainer.checkpoint import fetch, lineage
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint, newest_step, read
from trainmaster_trainer.checkpoint.other_jobs import FIELD, source_of
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import Remote, SavedCheckpoint
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores.folder import FolderSource
from trainmaster_trainer.checkpoint.stores.object_store import ObjectSource
from trainmaster_trainer.checkpoint.stores.store import Checkpoints, Row, Told
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

_ABSENT = "it is not there, or not good"


class ForeignFolder(FolderSource):
    """ForeignFolder looks once more where all are bad, as that job may have saved and pruned meanwhile."""

    _seen: int | None = None
    _why = _ABSENT

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        if not self.looks:
            return super().candidates(outline, way)
        if self._seen is None:
            self._folder = Path(source_of(self._settings))
        theirs = lineage.read(self._folder, None)
        if self._seen is None:
            self._seen = newest_step(self._folder, theirs.trusts)
        rows = super().candidates(outline, theirs)
        while not rows:
            theirs = lineage.read(self._folder, None)
            now = newest_step(self._folder, theirs.trusts)
            if now == self._seen:
                break
            self._seen, self._below = now, None
            rows = super().candidates(outline, theirs)
        return [[*row, str(self._folder)] for row in rows]

    @override
    def bring(self, newest: Row, told: Told) -> LoadedCheckpoint | None:
        self._folder = Path(newest[-1])
        return super().bring(newest, told)

    @override
    def why_none(self, way: Lineage) -> str:
        return _why_none(str(self._folder), self._settings.plan.resume_step, self._why)


class ForeignStep(ForeignFolder):
    """ForeignStep is the one checkpoint of a folder that `resumeFrom.step` names."""

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        self._expected, step = outline.model_shapes(), self._settings.plan.resume_step or 0
        if not self.looks or self._below is not None:
            return []
        self._folder = Path(source_of(self._settings))
        try:
            self._mine = read(self._folder, step, self._expected, lineage.read(self._folder, None).trusts)
        except CorruptCheckpointError as bad:
            self._why = str(bad)
            return []
        return [[step, str(self._folder)]]


class ForeignObjects(ObjectSource):
    """ForeignObjects looks once more likewise, in an object store."""

    _where = ""

    @override
    def look(self, way: Lineage) -> list[SavedCheckpoint]:
        theirs, wanted = lineage.read(self._settings.checkpoints, None, self._remote), self._settings.plan.resume_step
        return [one for one in fetch.on_the_way(self._remote, theirs) if wanted in (None, one.step)]

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        if self._group.is_first and not self._where:
            self._open(source_of(self._settings))
        rows = super().candidates(outline, way)
        if not rows and self._group.is_first:
            now = self.look(way)
            if [one.name for one in now] != self._seen:
                self._left = None
                rows = super().candidates(outline, way)
        return [[*row, self._where] for row in rows]

    def _open(self, where: str) -> None:
        self._where, self._remote = where, Remote(where, self._settings.plan.checkpoint_endpoint, FIELD)

    @override
    def bring(self, newest: Row, told: Told) -> LoadedCheckpoint | None:
        if not self._where:
            self._open(str(newest[-1]))
        return super().bring(newest[:-1], told)

    @override
    def why_none(self, way: Lineage) -> str:
        return _why_none(self._where, self._settings.plan.resume_step, _ABSENT)


def _why_none(where: str, step: int | None, why: str) -> str:
    """Return the sentence with the cure. `step`: the one that is asked for; None: the newest good one."""
    if step is None:
        return f"{FIELD}: there is no good checkpoint in {where}. Correct the path or take it out."
    return f"{FIELD}: step {step} in {where} cannot be used: {why}. Name another step."


def open_foreign(settings: Settings, group: Group) -> Checkpoints:
    """Return the source that `resumeFrom` points to. It may be that no such job has a checkpoint."""
    plan = settings.plan
    if "://" in (plan.resume_from or plan.checkpoint_url or ""):
        return ForeignObjects(settings, group, home=None)
    kind = ForeignFolder if plan.resume_step is None else ForeignStep
    return kind(settings, group, Path(), looks=group.is_first)
