"""Rank the jobs of a sweep by a figure, and show them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli.sweep_plan import Trial
from trainmaster.core.figures import short

_SMALL_IS_GOOD = re.compile(r"loss|error|perplexity", re.IGNORECASE)


@dataclass(frozen=True)
class TrialOutcome:
    """An outcome says how a trial has ended: its phase, its status, and why it failed, if it did."""

    trial: Trial
    phase: str
    status: TrainingJobStatus
    why: str = ""

    @property
    def good(self) -> bool:
        """Return whether it has succeeded."""
        return self.phase == Phase.SUCCEEDED


@dataclass(frozen=True)
class SweepAim:
    """An aim is the figure that the best one has, whether small is good, and whether a run's best evaluation counts."""

    metric: str
    smallest: bool
    best_of_run: bool = False

    @classmethod
    def for_metric(cls, metric: str, mode: str | None, *, best_of_run: bool = False) -> SweepAim:
        """Return the aim; without a mode, the smallest of what is called a loss or an error is the best."""
        return cls(metric, mode == "min" if mode else bool(_SMALL_IS_GOOD.search(metric)), best_of_run)

    def value(self, status: TrainingJobStatus) -> float | None:
        """Return the figure of a status: of its evaluations, its loss, or a metric of its last step."""
        progress = status.progress
        if progress is None:
            return None
        evaluated = [dict(progress.evaluation.figures)] if progress.evaluation else []
        if self.best_of_run:
            evaluated += [point.figures for point in status.evaluations]
        plain = self.metric.removeprefix("eval ")
        if values := [figures[plain] for figures in evaluated if plain in figures]:
            return min(values) if self.smallest else max(values)
        return progress.loss if self.metric == "loss" else (progress.metrics or {}).get(self.metric)


def best(outcomes: Sequence[TrialOutcome], aim: SweepAim) -> TrialOutcome | None:
    """Return the best one that has succeeded; None where none has, or none has the figure."""
    known = [(value, one) for one in outcomes if one.good and (value := aim.value(one.status)) is not None]
    pick = min if aim.smallest else max
    return pick(known, key=lambda pair: pair[0])[1] if known else None


def table(outcomes: Sequence[TrialOutcome], aim: SweepAim) -> list[str]:
    """Return the trials, the best one first, those without the figure last."""
    rows = [["NAME", aim.metric.upper(), "PHASE", "STEP", "CHANGES"]]
    values = [(aim.value(one.status), one) for one in outcomes]
    sign = 1 if aim.smallest else -1
    for value, one in sorted(values, key=lambda pair: (pair[0] is None, not pair[1].good, sign * (pair[0] or 0.0))):
        progress = one.status.progress
        figure = "-" if value is None else short(value)
        rows.append([one.trial.name, figure, one.phase, progress.summary if progress else "-", one.trial.label])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def ending(outcomes: Sequence[TrialOutcome], aim: SweepAim, given: Sequence[str]) -> list[str]:
    """Return the last sentences: which is the best and how to train it again, or why there is none."""
    winner = best(outcomes, aim)
    if winner:
        value = aim.value(winner.status)
        changes = " ".join(f"--set {change}" for change in (*given, *winner.trial.changes))
        return [f"Best by {aim.metric} ({short(value or 0.0)}): {winner.trial.name}. Again: {changes}"]
    if any(one.good for one in outcomes):
        known = sorted({name for one in outcomes for name in figures(one.status)})
        return [f"None of them has told a figure {aim.metric}. They have {', '.join(known) or 'none'}: --metric"]
    first = outcomes[0]
    return [
        f"None of {len(outcomes)} has succeeded. {first.trial.name}: {first.why or first.status.message or first.phase}"
    ]


def figures(status: TrainingJobStatus) -> list[str]:
    """Return the names of the figures that a status has."""
    progress = status.progress
    if progress is None:
        return []
    evaluated = progress.evaluation.figures if progress.evaluation else {}
    return [*(["loss"] if progress.loss is not None else []), *(progress.metrics or {}), *evaluated]
