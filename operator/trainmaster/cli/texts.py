"""Make the sentences of `trainmaster run`, the same on a terminal and in a pipe."""

from pathlib import Path
from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import RestartDecision
from trainmaster.api.status import JobProgress, RestartRecord, TrainingJobStatus
from trainmaster.core.figures import duration
from trainmaster.core.report import tracking, waits
from trainmaster.core.states.actions import PostEvent
from trainmaster.local.local_run import RunOutcome
from trainmaster.local.workdir import LOGS
from trainmaster.wire.frameworks import TORCH

_MOST_RESTARTS_TOLD = 10
_MOST_FIGURES_SHOWN = 3  # of a step, and of an evaluation


def headline(job: TrainingJob) -> str:
    """Return what the run is going to do."""
    training, workers = job.spec.training, job.spec.workers
    what = training.task or " ".join(training.command or ())
    each = job.spec.ranks_each
    devices = f" with {each} ranks each" if each > 1 else ""
    by = job.spec.strategy.type if training.framework == TORCH else f"{training.framework} ({job.spec.strategy.type})"
    return f"{job.name}: {what} by {by} on {count(workers.replicas, 'worker')}{devices}"


def event_line(event: PostEvent) -> str:
    """Return an event in one line; a warning begins with an exclamation mark."""
    return f"{'! ' if event.type == 'Warning' else ''}{event.reason}: {event.message}"


def progress_line(status: TrainingJobStatus, progress: JobProgress) -> str:
    """Return phase, step, loss, speed and remaining time in one line."""
    parts = [status.phase.lower(), f"step {progress.summary}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    parts += [f"{name} {value:.4g}" for name, value in shown_figures(progress).items()]
    if progress.samples_per_second:
        parts.append(f"{progress.samples_per_second:,.0f} samples/s")
    if progress.eta:
        parts.append(f"ETA {progress.eta}")
    if status.replicas:
        parts.append(f"workers {status.replicas.summary}")
    if status.restart_count:
        parts.append(count(status.restart_count, "restart"))
    return "  ".join(parts)


def shown_figures(progress: JobProgress) -> dict[str, float]:
    """Return the first metrics of the step and figures of the newest evaluation, as many as there is room for."""
    evaluated = progress.evaluation.figures if progress.evaluation else {}
    named = {f"eval {name}": value for name, value in sorted(evaluated.items())[:_MOST_FIGURES_SHOWN]}
    return dict(sorted((progress.metrics or {}).items())[:_MOST_FIGURES_SHOWN]) | named


def closing_lines(outcome: RunOutcome, result: dict[str, Any], folder: Path) -> list[str]:
    """Return the last lines for people: first how the run ended, then its figures, restarts, faults and folder."""
    status = outcome.status
    ledger: list[str] = []
    message = status.message or ""  # of a run that was stopped it begins with that word
    lines = [message if outcome.stopped else f"{status.phase}: {message}"]
    if outcome.cause.lines:
        lines += [f"  {outcome.cause.title}:", *(f"    {line}" for line in outcome.cause.lines)]
    metrics = result.get("metrics", {}) if status.phase == "Succeeded" else {}
    told = {name: f"{value:.4f}" for name, value in metrics.items() if isinstance(value, (int, float))}
    figures = {**trained(status), **told}
    if status.checkpoint:
        figures["checkpoint"] = f"step {status.checkpoint.step}, model sha256 {status.checkpoint.sha256[:16]}"
    figures |= _complaints(status)
    if status.restart_count:
        figures["restarts"] = str(status.restart_count)
        ledger = [f"    {restart_line(record)}" for record in status.restarts[-_MOST_RESTARTS_TOLD:]]
    faults = [f"  --fault     {fault}: {cost}" for fault, cost in outcome.faults]
    where = {"logs": f"{folder / LOGS}: one file for each start of each worker", "folder": str(folder)}
    return [*lines, *_rows(figures), *ledger, *faults, *_rows(where)]


def _complaints(status: TrainingJobStatus) -> dict[str, str]:
    """Return what was not well to the end, though it failed nothing: trackers, and what the ranks waited for."""
    told: dict[str, str] = {}
    for one in status.conditions:
        if one.type == tracking.TRACKERS_REACHED and one.status == "False":
            told["trackers"] = one.message.removesuffix(tracking.KEPT).strip()
        if one.reason == waits.TO_THE_END:
            told["waiting"] = one.message
    return told


def trained(status: TrainingJobStatus) -> dict[str, str]:
    """Return the steps, loss and time that are known. A job that began beyond its last step has trained none."""
    figures: dict[str, str] = {}
    if status.progress and 0 < status.progress.step <= (status.progress.total_steps or status.progress.step):
        loss = "" if status.progress.loss is None else f", loss {status.progress.loss:.4g}"
        figures["trained"] = f"{status.progress.summary} steps{loss}"
    if status.start_time and status.completion_time:
        figures["took"] = duration((status.completion_time - status.start_time).total_seconds())
    return figures


def restart_line(record: RestartRecord) -> str:
    """Return when a failure happened, what failed, and what it cost."""
    cost, is_end = [], record.decision != RestartDecision.RESTART
    if record.steps_lost:
        cost.append(f"{count(record.steps_lost, 'step')} {'not kept' if is_end else 'to train again'}")
    if record.seconds_lost is not None:
        cost.append(f"{record.seconds_lost:.2g} s lost")
    told = f"{record.time.astimezone():%H:%M:%S}  {record.replica} at step {record.step}: {record.exit}"
    return ", ".join([told, *cost]) + (" (the end)" if is_end else "")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 worker, 2 workers."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _rows(figures: dict[str, str]) -> list[str]:
    return [f"  {name:<11} {value}" for name, value in figures.items() if value]
