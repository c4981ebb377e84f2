"""Keep a run of Weights & Biases, through the user's own library wandb.

The run's id is the job's uid. Its own steps only rise, so the training's step is a figure of each point, against which
the others are drawn: what a resume cuts off is told once more at the same place. Offline, each follower writes a folder
of its own with the same run's id, and `wandb sync` joins them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from trainmaster_trainer.trackers.points import ATTEMPT, Point, TrackedJob

_STEP = "step"
_INIT_SECONDS = 30.0


class WandbRun:
    """WandbRun speaks to the library."""

    def __init__(self, subject: TrackedJob) -> None:
        self._subject = subject
        self._run: Any = None
        self._known = -1  # the last step that the server has of this run, where this follower has lost its state

    def begin(self, run: str) -> str:
        """Begin the run, or go on with it."""
        subject, options = self._subject, self._subject.options
        if "url" in options:
            os.environ["WANDB_BASE_URL"] = options["url"]
        mode = options.get("mode") or os.environ.get("WANDB_MODE") or "online"
        name = subject.uid.replace("-", "")
        self._run = self._opened(run or name, mode)
        self._run.define_metric(_STEP, hidden=True)
        self._run.define_metric("*", step_metric=_STEP)
        if not run and self._run.resumed:
            self._known = int(self._run.summary.get(_STEP, -1))
        return run or name

    def _opened(self, name: str, mode: str) -> Any:
        import wandb  # noqa: PLC0415 it takes seconds, and may not be there

        subject, options = self._subject, self._subject.options
        try:
            return wandb.init(
                id=name,
                name=subject.name,
                project=options.get("project") or os.environ.get("WANDB_PROJECT") or subject.name,
                entity=options.get("entity") or os.environ.get("WANDB_ENTITY"),
                mode=mode,
                dir=subject.folder,
                config=dict(subject.parameters),
                resume="allow",
                reinit=True,
                settings=wandb.Settings(
                    silent=True, console="off", init_timeout=_INIT_SECONDS, disable_git=True, save_code=False
                ),
            )
        except Exception:
            wandb.teardown()  # or the next try finds the run in use, by this one
            raise

    def cut(self, step: int) -> None:
        """Do nothing: later steps are told once more, at the same place."""
        self._known = min(self._known, step)

    def tell(self, points: Sequence[Point]) -> None:
        """Log the figures."""
        for point in points:
            if point.step > self._known:
                self._run.log({**point.figures, _STEP: point.step, ATTEMPT: point.attempt, "time": point.time})

    def restarted(self, point: Point) -> None:
        """Count the restart in the summary."""
        self._run.summary["restarts"] = point.attempt - 1

    def finish(self, end: str) -> None:
        """End the run; one that may go on later can be resumed all the same."""
        self._run.finish(exit_code=0 if end == "finished" else 1)
