"""Evaluations says when the model is evaluated, which evaluated step is the best, and when training stops early.

It decides by the figures alone, which are the same on all ranks, and what it knows is part of every state of the
training (`carried.py`): a training that is killed and goes on from an older state comes to the same decisions again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainmaster.wire.messages import Evaluation
from trainmaster.wire.training import Aim, TrainingPlan

from trainmaster_trainer.errors import ConfigurationError, near

log = logging.getLogger(__name__)
BESTS = 8  # steps that were the best one after another: should the checkpoint of the last be missing, the one before is
_BEST, _STOP = "spec.checkpoint.best", "spec.training.stopEarly"
Figures = Mapping[str, float]


@dataclass
class Judge:
    """Judge follows one figure: its best value, the steps that had it, and how many evaluations have passed since."""

    aim: Aim
    value: float | None = None
    steps: list[int] = field(default_factory=list)  # the newest last
    waited: int = 0

    def look(self, where: str, step: int, figures: Figures) -> bool:
        """Take an evaluation. Return whether it is the best so far; a figure that is not finite never is.

        Raises:
            ConfigurationError: it has no such figure.
        """
        name = self.aim.metric
        if name not in figures:
            raise ConfigurationError(
                f"{where}.metric: the evaluation has no figure {name!r}; it has {sorted(figures) or 'none'}."
                f"{near(name, figures)}"
            )
        value = figures[name]
        sign = -1 if self.aim.mode == "max" else 1
        if math.isfinite(value) and (self.value is None or sign * value < sign * self.value):
            self.value, self.steps, self.waited = value, [*self.steps[-BESTS + 1 :], step], 0
            return True
        self.waited += 1
        return False

    def plain(self) -> dict[str, Any]:
        """Return what outlives the process, as JSON."""
        return asdict(self)

    def restore(self, plain: Mapping[str, Any] | None) -> None:
        """Go on from what `plain` gave, if it was about the same figure.

        Raises:
            TypeError, ValueError, KeyError: `plain` never gave this.
        """
        if plain is None or Aim(**plain["aim"]) != self.aim:
            return
        value = plain["value"]
        self.value = None if value is None else float(value)
        self.steps, self.waited = [int(step) for step in plain["steps"]], int(plain["waited"])


class Evaluations:
    """Evaluations holds the newest evaluation of a training, and what follows from all of them."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._forget()

    def _forget(self) -> None:
        plan = self._plan
        self.step = 0  # of the newest evaluation; 0: there is none
        self.figures: dict[str, float] = {}
        self.stopped = ""  # why training ends after this step, in a sentence
        self._best = Judge(plan.checkpoint_best) if plan.checkpoint_best else None
        self._stop = Judge(plan.stop_early) if plan.stop_early else None

    @property
    def are_on(self) -> bool:
        """Return whether there are evaluations before the last step."""
        return self._plan.evaluate_every is not None

    def due(self, step: int) -> bool:
        """Return whether the model after this step is to be evaluated, and was not yet."""
        every = self._plan.evaluate_every
        if every is None or step <= self.step:
            return False
        return step > 0 and (step % every == 0 or step == self._plan.steps)

    def take(self, step: int, figures: Figures) -> bool:
        """Take the figures after a step. Return whether its state must be saved: it is the best, or the last one.

        Raises:
            ConfigurationError: a figure that is looked at is missing.
        """
        is_best = self._best is not None and self._best.look(_BEST, step, figures)
        self.step, self.figures = step, dict(figures)
        looked_at = {judge.aim.metric for judge in (self._best, self._stop) if judge is not None}
        for name in sorted(looked_at & figures.keys()):
            if not math.isfinite(figures[name]):
                log.warning(
                    "%s of the evaluation after step %d is %s, which is never better.", name, step, figures[name]
                )
        if self._stop is None or self._stop.look(_STOP, step, figures):
            return is_best
        if self._stop.waited >= self._stop.aim.patience:
            evaluations = "1 evaluation" if self._stop.waited == 1 else f"{self._stop.waited} evaluations"
            before = ""
            if self._stop.steps and self._stop.value is not None:
                before = f"; it was best, {self._stop.value:.6g} after step {self._stop.steps[-1]}"
            self.stopped = (
                f"Training stopped early after step {step}: {self._stop.aim.metric} has not become better for "
                f"{evaluations} (spec.training.stopEarly){before}."
            )
        return is_best or bool(self.stopped)

    def report(self) -> Evaluation:
        """Return what is told of the newest evaluation."""
        steps = self._best.steps if self._best else []
        return Evaluation(self.step, dict(self.figures), steps[-1] if steps else None, self.stopped)

    def plain(self) -> dict[str, Any]:
        """Return what outlives the process, as JSON, which has no NaN."""
        figures = {name: value if math.isfinite(value) else None for name, value in self.figures.items()}
        best, stop = (judge.plain() if judge else None for judge in (self._best, self._stop))
        return {"step": self.step, "figures": figures, "stopped": self.stopped, "best": best, "stop": stop}

    def restore(self, plain: Any) -> None:
        """Go on from what `plain` gave. What it never gave counts as nothing: no evaluation is worth a failure."""
        self._forget()
        try:
            self._restore(plain)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            log.warning("What the state says of evaluations cannot be read, and begins anew: %r", error)
            self._forget()

    def _restore(self, plain: Mapping[str, Any]) -> None:
        self.step = int(plain["step"])
        told = plain["figures"].items()
        self.figures = {str(name): math.nan if value is None else float(value) for name, value in told}
        for judge, name in ((self._best, "best"), (self._stop, "stop")):
            if judge is not None:
                judge.restore(plain[name])
        if self._stop is not None and self._stop.waited >= self._stop.aim.patience:
            self.stopped = str(plain["stopped"])

    def begin_anew(self) -> None:
        """Forget all: the state is another job's."""
        self._forget()
