"""Measures looks at what a script reports, for `checkpoint.best` and `training.stopEarly`."""

from __future__ import annotations

import logging

from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.evaluations import Evaluations
from trainmaster_trainer.group import Group
from trainmaster_trainer.script_progress import ScriptProgress

log = logging.getLogger(__name__)


class Measures:
    """Measures takes the figures of rank 0 after every so many steps (`training.evaluateEverySteps`)."""

    def __init__(self, plan: TrainingPlan, progress: ScriptProgress, group: Group) -> None:
        self.evaluations = Evaluations(plan)
        self._every, self._progress, self._group = plan.evaluate_every, progress, group

    def look(self, before: int, n: int) -> bool:
        """Look at what was reported, if that is due between two steps. Return whether step `n` must be saved for it.

        All ranks call it together.

        Raises:
            ConfigurationError: the figure that counts was not reported.
        """
        if self._every is None or n // self._every == before // self._every:
            return False
        figures = self._group.gather(self._progress.figures)[0]
        self._progress.figures = {}
        must_be_saved = self.evaluations.take(n, figures)
        self._show()
        return must_be_saved

    def leave_if_stopped(self) -> None:
        """End this rank with success where `stopEarly` has ended the training; all ranks have the same figures."""
        if self.evaluations.stopped:
            self._show()
            log.info("%s", self.evaluations.stopped)
            raise SystemExit(0)

    def _show(self) -> None:
        if self._group.is_first:
            self._progress.evaluated(self.evaluations.report())
