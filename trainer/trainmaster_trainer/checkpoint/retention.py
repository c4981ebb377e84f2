"""Retention keeps the newest checkpoints of the training's way, and the best one (`spec.checkpoint.best`).

What is bad, or of a branch that was given up, goes first: it stays while the others leave room for it under `keep`, so
that a user may look at it or begin another job with it. What a resume passed over as bad is beyond the step that it
went on from, so the lineage knows it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trainmaster_trainer.checkpoint import layout, lineage
from trainmaster_trainer.checkpoint.layout import step_folder
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.manifest_check import glance
from trainmaster_trainer.checkpoint.remote import Remote, SavedCheckpoint
from trainmaster_trainer.settings import Settings


@dataclass
class Retention:
    """Retention decides what one attempt keeps."""

    settings: Settings
    remote: Remote | None
    counted: set[int] = field(default_factory=set)  # steps in the folder that were found to be on the way
    bests: Sequence[int] = ()  # steps that were the best one after another; the last that is there is kept

    @cached_property
    def way(self) -> Lineage:
        """Return the lineage as the resume of this attempt has left it."""
        return lineage.read(self.settings.checkpoints, self.settings.job_uid, self.remote)

    def prune_folder(self, saved: int) -> None:
        """Delete surplus checkpoints in the folder, but never that of step `saved`, which is known to be good.

        Raises:
            OSError: what there is cannot be read now.
        """
        self.counted.add(saved)
        good: list[int] = []
        others: list[int] = []
        folder, keep = self.settings.checkpoints, self.settings.plan.checkpoint_keep
        steps = layout.saved_steps(folder)
        best = next((step for step in reversed(self.bests) if step in steps and self._counts(step)), None)
        for step in steps:  # those behind `keep` good ones are not looked at
            (good if len(good) < keep and self._counts(step) else others).append(step)
        for step in (good + others)[keep:]:
            if step not in (saved, best):
                layout.remove(step_folder(folder, step))

    def _counts(self, step: int) -> bool:
        if step not in self.counted:
            seen = glance(step_folder(self.settings.checkpoints, step), step)
            if seen is None or not self.way.trusts(seen):
                return False
            self.counted.add(step)
        return True

    def surplus(self, saved: Iterable[SavedCheckpoint]) -> list[SavedCheckpoint]:
        """Return the checkpoints in the object store that are too many."""
        ranked = sorted(saved, key=lambda one: (self.way.holds(one.attempt, one.step), one), reverse=True)
        good = [one for one in ranked if self.way.holds(one.attempt, one.step)]
        best = next((one for step in reversed(self.bests) for one in good if one.step == step), None)
        return [one for one in ranked[self.settings.plan.checkpoint_keep :] if one != best]


def bests_of(scalars: Mapping[str, Any]) -> list[int]:
    """Return the steps that were the best one after another, as a state says."""
    try:
        return [int(step) for step in scalars["evaluations"]["best"]["steps"]]
    except (KeyError, TypeError, ValueError):  # there are no evaluations
        return []
