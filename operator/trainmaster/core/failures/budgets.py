"""Decide whether a job goes on after a failure: the table of classes is compared with the restart ledger.

The budgets are computed from the ledger, so every failure that counts is also shown. "Without progress" means that the
job has not gone REFILL_INTERVALS checkpoint intervals past the failure since. A script reports no steps: for it,
running for REFILL_SECONDS since the failure is progress.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import MAX_RESTARTS_KEPT, RestartRecord
from trainmaster.core import figures
from trainmaster.core.failures import classes
from trainmaster.core.failures.failures import Failure

# Progress of this many checkpoint intervals past a failure shows that it did no lasting harm: it leaves the budget.
REFILL_INTERVALS = 10
# So does this time of running where no steps are reported. It is long, because a script without checkpoints comes back
# to the same error after the same time, and must not do so for ever.
REFILL_SECONDS = 86_400
EXHAUSTED = "RestartsExhausted"


@dataclass(frozen=True)
class Stop:
    """Hold why a restart would not help: a CamelCase reason, and a sentence."""

    reason: str
    why: str


def reason_to_stop(job: TrainingJob, before: Sequence[RestartRecord], failure: Failure, now: datetime) -> Stop | None:
    """Return why not to restart after `failure` at `now`; None: restart."""
    kind = classes.class_of(failure.failure_class)
    if kind.name in classes.FREE:
        return None
    if kind.limit == 0:
        has_trained = failure.step > 0 or job.status.checkpoint is not None
        return Stop("BadConfiguration", f"{kind.cure} {kind.cure_after_steps}" if has_trained else kind.cure)
    is_script = bool(job.spec.training.command)
    meanwhile = "within a day of running" if is_script else "without progress between"
    before = _not_outrun(job, before, now)
    if kind.repeats and times_the_same(before, failure) + 1 >= kind.repeats:
        why = "A restart would repeat it."
        if kind.repeats > 1:
            times = "twice" if kind.repeats == 2 else f"{kind.repeats} times"  # noqa: PLR2004  the word for it
            place = "" if is_script else f" at step {failure.step}"
            why = f"The same error came {times}{place} {meanwhile}; a restart would repeat it."
        return Stop(failure.failure_class, f"{why} {kind.cure}".strip())
    limit = (kind.limit_of_scripts if is_script else None) or kind.limit
    alike = [line for line in _recent(job, before, failure.step) if line.failure_class == failure.failure_class]
    if limit and len(alike) >= limit:
        again = "Once more" if limit == 1 else f"{limit + 1} times"
        why = f"{again} the same kind of failure ({kind.name}) {meanwhile}. {kind.cure}".strip()
        return Stop(failure.failure_class, why)
    most = min(job.spec.failure_policy.max_restarts, MAX_RESTARTS_KEPT)
    if not kind.costs or budget_used(job, before, failure.step) < most:
        return None
    used_up = f"The budget of {most} restarts (spec.failurePolicy.maxRestarts) is used up."
    return Stop(EXHAUSTED, f"{used_up} {kind.cure}".strip())


def budget_used(job: TrainingJob, before: Sequence[RestartRecord], step: int) -> int:
    """Return the number of restarts that count: failures that cost and are not REFILL_INTERVALS checkpoints back."""
    return sum(1 for line in _recent(job, before, step) if classes.class_of(line.failure_class).costs)


def times_the_same(before: Sequence[RestartRecord], failure: Failure) -> int:
    """Return how often the ledger has this failure at this step or later, with nothing further reached in between.

    Failures of classes that are free (an eviction) are skipped: they neither count as a repetition nor end the search.
    """
    found = 0
    for line in reversed(before):
        if line.failure_class in classes.FREE:
            continue
        if line.fingerprint == failure.fingerprint and failure.step <= line.step:
            found += 1
        elif line.fingerprint == failure.fingerprint or line.step > failure.step:
            break  # the job had come further
    return found


def restart_at(job: TrainingJob, lines: Sequence[RestartRecord]) -> datetime | None:
    """Return when the attempt after the newest line may begin; None: at once."""
    if not lines or lines[-1].seconds_lost is not None:
        return None
    last = lines[-1]
    pauses = classes.class_of(last.failure_class).pauses
    if not pauses:
        return None
    recent = _recent(job, _not_outrun(job, lines[:-1], last.time), last.step)
    before = sum(1 for line in recent if line.failure_class == last.failure_class)
    pause = pauses[min(before, len(pauses) - 1)]
    return figures.later(last.time, pause) if pause else None


def _recent(job: TrainingJob, before: Sequence[RestartRecord], step: int) -> list[RestartRecord]:
    horizon = REFILL_INTERVALS * job.spec.checkpoint.every_steps
    return [line for line in before if step - line.step < horizon]


def _not_outrun(job: TrainingJob, before: Sequence[RestartRecord], now: datetime) -> Sequence[RestartRecord]:
    """Return the lines that still count: for a script, those since which it has run for less than REFILL_SECONDS."""
    if not job.spec.training.command:
        return before
    resumed = job.status.start_time or before[0].time if before else now
    found = []
    for place, line in enumerate(before):
        since = max(line.time, resumed)  # its own time, or that of the last suspension
        lost = sum(later.seconds_lost or 0.0 for later in before[place:] if later.time >= since)
        if (now - since).total_seconds() - lost < REFILL_SECONDS:
            found.append(line)
    return found
