"""Take over what a task measures beside its loss: metrics of a step, figures of the newest evaluation."""

import math
from collections.abc import Iterable, Mapping

from trainmaster.api.status import EvaluationStatus, JobProgress, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.situation.facts import Facts, Statement
from trainmaster.wire.messages import RankProgress

EARLY_STOPPED = "EarlyStopped"
FIGURES_FINITE, NOT_FINITE = "FiguresFinite", "FigureNotFinite"
LOSS_NOT_FINITE = "LossNotFinite"
FIGURES_REPORTED, NOT_REPORTED = "FiguresReported", "NothingToLookAt"


def evaluation(ranks: Iterable[RankProgress], before: JobProgress) -> EvaluationStatus | None:
    """Return the newest evaluation that a rank tells; that before where none tells any."""
    told = [one.figures.evaluation for one in ranks if one.figures and one.figures.evaluation]
    if not told:
        return before.evaluation
    newest = max(told, key=lambda one: one.step)
    return EvaluationStatus(
        step=figures.count(newest.step),
        figures=finite(newest.figures),
        best_step=None if newest.best_step is None else figures.count(newest.best_step),
        stopped=figures.legible(newest.stopped) or None,
    )


def stopped(facts: Facts, status: TrainingJobStatus) -> str:
    """Return why training has ended before its last step, in a sentence; empty where it has not."""
    if facts.job.spec.training.stop_early is None:
        return ""
    newest = evaluation(facts.ranks, status.progress or JobProgress())
    return (newest.stopped or "") if newest else ""


def statement(facts: Facts) -> Statement | None:
    """Return the condition on a script's loss and the figures of the newest evaluation; None: all have been finite."""
    told = [one.figures.evaluation for one in facts.ranks if one.figures and one.figures.evaluation]
    before = next((one for one in facts.status.conditions if one.type == FIGURES_FINITE), None)
    odd_loss = next((one for one in facts.ranks if one.loss_is_odd), None)
    if odd_loss:
        message = (
            f"The loss of rank {odd_loss.rank} after step {figures.count(odd_loss.step)} is NaN or infinite, so it is "
            "not shown. The script goes on; let it raise an error where such a loss means that the model is lost."
        )
        return FIGURES_FINITE, False, LOSS_NOT_FINITE, message
    if before and before.reason == LOSS_NOT_FINITE and any(one.loss is not None for one in facts.ranks):
        return FIGURES_FINITE, True, "Finite", "The loss is finite again."
    if not told:
        return (FIGURES_FINITE, before.status == "True", before.reason, before.message) if before else None
    newest = max(told, key=lambda one: one.step)
    spec = facts.job.spec
    aims = {aim.metric for aim in (spec.training.stop_early, spec.checkpoint.best) if aim}
    none = {name for name, value in newest.figures.items() if value is None}
    odd = sorted(none & aims or none)
    if odd:
        named = ", ".join(map(figures.legible, odd))
        outcome = "that step is not the best one, and counts towards stopEarly.patience"
        message = (
            f"{named} of the evaluation after step {figures.count(newest.step)} is no finite number, so "
            f"{outcome if none & aims else 'it is left out'}. Look at what metrics() or evaluate() of the task "
            "divides by."
        )
        return FIGURES_FINITE, False, NOT_FINITE, message
    return (FIGURES_FINITE, True, "Finite", "The figures of the newest evaluation are finite.") if before else None


def reported(facts: Facts) -> Statement | None:
    """Return the condition on a script that reports nothing for `stopEarly` or `checkpoint.best`; None: it does."""
    training, best = facts.job.spec.training, facts.job.spec.checkpoint.best
    every = training.evaluate_every_steps
    if training.command is None or every is None or (training.stop_early is None and best is None):
        return None
    stated = any(one.type == FIGURES_REPORTED for one in facts.status.conditions)
    if evaluation(facts.ranks, facts.status.progress or JobProgress()):
        return (FIGURES_REPORTED, True, "Reported", "The figures were looked at.") if stated else None
    step = max((rank.step for rank in facts.ranks), default=0)
    if step < 2 * every and not stated:
        return None
    fields = [name for name, aim in (("checkpoint.best", best), ("training.stopEarly", training.stop_early)) if aim]
    return (
        FIGURES_REPORTED,
        False,
        NOT_REPORTED,
        (
            f"spec.{' and spec.'.join(fields)} had nothing to look at so far, though evaluateEverySteps is {every}: no "
            "checkpoint is kept for it, and nothing stops early. Let the script call session.report with the figure, "
            "then step(n) of session.state, which looks at it."
        ),
    )


def finite(told: Mapping[str, float | None]) -> dict[str, float]:
    """Return those of the figures that a status can hold."""
    known = {figures.legible(name): value for name, value in told.items() if value is not None}
    return {name: value for name, value in known.items() if math.isfinite(value)}
