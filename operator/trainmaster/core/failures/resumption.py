"""Compute what training goes on from after a failure: the step, and which checkpoints are trusted."""

from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.failures import classes, ledger
from trainmaster.core.situation.facts import Facts


def resumed_at(facts: Facts) -> int:
    """Return the step that training goes on from: as ranks report (memory may be newer), else the checkpoint's.

    Nothing is known to be lost where a script does not report it.
    """
    if facts.resumed_step is not None:
        return facts.resumed_step
    if facts.regime.tells_steps_late():
        return reached(facts)
    return facts.checkpoint.step if facts.checkpoint else 0


def reached(facts: Facts) -> int:
    """Return the furthest step that was trained before training goes on.

    Where other programs of a script had trained before, it is none that the steps told now could be compared with.
    """
    # Of lines that are closed something else is known: training has gone on since.
    lines = facts.status.restarts if ledger.is_open(facts.status) else ()
    if lines and lines[-1].earlier_steps is not None:
        return facts.resumed_step or 0
    progress = facts.status.progress
    if not lines and facts.resumed_step is not None and progress and progress.earlier_steps:
        return facts.resumed_step  # of the phase before a pause
    told = progress.step if progress else 0
    if facts.regime.tells_steps_late():  # it runs already, so its last try began after these failures
        unknown = [line.step for line in lines if line.steps_lost is None and line.earlier_steps is None]
        return max(unknown, default=told) or told
    return max(fallen_from(facts), told)


def fallen_from(facts: Facts) -> int:
    """Return the furthest step of the failures after which training has not gone on; 0 where there is none."""
    lines = facts.status.restarts
    return max((lines[place].step for place in ledger.since_the_last_try(facts, lines)), default=0)


def still_before(facts: Facts) -> int | None:
    """Return `resume_before` while it holds: an attempt inherits it until all have trained past it and saved again."""
    before = facts.status.resume_before
    if before is None or facts.status.phase != Phase.RUNNING:
        return before
    newest = facts.checkpoint.step if facts.checkpoint else 0
    return None if max(facts.step, newest) > before else before


def doubted_attempt(status: TrainingJobStatus) -> int | None:
    """Return the attempt whose failure `status.resume_before` follows (later checkpoints are trusted); or None."""
    doubted = [line.attempt for line in status.restarts if classes.class_of(line.failure_class).older]
    return doubted[-1] if doubted and status.resume_before is not None else None
