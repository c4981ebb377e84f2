"""Retention keeps the newest checkpoints of the training's way, and the best one (`spec.checkpoint.best`).

What is bad, or of a branch that was given up, goes first: it stays while the others leave room for it under `keep`, so
that a user may look at it or begin another job with it. What a resume passed over as bad is beyond the step that it
went on from, so the lineage knows it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from trainmaster_trainer.checkpoint import layout, lineage
from trainmaster_trainer.checkpoint.layout import step_folder
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.manifest import glance
from trainmaster_trainer.checkpoint.remote import Remote, Saved
from trainmaster_trainer.settings import Settings


class Retention:
    """Retention decides what one attempt keeps."""

    def __init__(self, settings: Settings, remote: Remote | None) -> None:
        self._folder = settings.checkpoints
        self._keep = settings.plan.checkpoint_keep
        self._job = settings.job_uid
        self._remote = remote
        self._counted: set[int] = set()  # steps in the folder that were found to be on the way
        self.bests: Sequence[int] = ()  # steps that were the best one after another; the last that is there is kept

    @cached_property
    def way(self) -> Lineage:
        """Return the lineage as the resume of this attempt has left it."""
        return lineage.read(self._folder, self._job, self._remote)

    def prune_folder(self, saved: int) -> None:
        """Delete surplus checkpoints in the folder, but never that of step `saved`, which is known to be good.

        Raises:
            OSError: what there is cannot be read now.
        """
        self._counted.add(saved)
        good: list[int] = []
        others: list[int] = []
        steps = layout.saved_steps(self._folder)
        best = next((step for step in reversed(self.bests) if step in steps and self._counts(step)), None)
        for step in steps:  # those behind `keep` good ones are not looked at
            (good if len(good) < self._keep and self._counts(step) else others).append(step)
        for step in (good + others)[self._keep :]:
            if step not in (saved, best):
                layout.remove(step_folder(self._folder, step))

    def _counts(self, step: int) -> bool:
        if step not in self._counted:
            seen = glance(step_folder(self._folder, step), step)
            if seen is None or not self.way.trusting(self._job)(seen):
                return False
            self._counted.add(step)
        return True

    def surplus(self, saved: Iterable[Saved]) -> list[Saved]:
        """Return the checkpoints in the object store that are too many."""
        ranked = sorted(saved, key=lambda one: (self.way.holds(one.attempt, one.step), one), reverse=True)
        good = [one for one in ranked if self.way.holds(one.attempt, one.step)]
        best = next((one for step in reversed(self.bests) for one in good if one.step == step), None)
        return [one for one in ranked[self._keep :] if one != best]


def bests_of(scalars: Mapping[str, Any]) -> list[int]:
    """Return the steps that were the best one after another, as a state says."""
    try:
        return [int(step) for step in scalars["evaluations"]["best"]["steps"]]
    except (KeyError, TypeError, ValueError):  # there are no evaluations
        return []
