"""Apply `spec.activeDeadlineSeconds`: the time that the whole job may take, waiting included."""

from trainmaster.core import figures
from trainmaster.core.failures import ledger
from trainmaster.core.situation import obstacles
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import ending, phases
from trainmaster.core.states.verdict import NOTHING, Verdict


def expire(facts: Facts) -> Verdict:
    """Fail the job when its time is up; else look again then."""
    seconds, started = facts.job.spec.active_deadline_seconds, facts.status.start_time
    if seconds is None or started is None:
        return NOTHING
    end = figures.later(started, seconds)
    if facts.now < end:
        return Verdict(wake_at=end)
    status = facts.status
    why = "Raise it, or train fewer steps." if facts.job.spec.training.steps else "Raise it."
    if status.phase in phases.GATHERING:
        failure = status.restarts[-1] if ledger.is_open(status) else None
        after = f" after {failure.replica}: {figures.sentence(failure.evidence or '')}" if failure else "."
        why = f"Attempt {status.attempt} had not begun{after} {obstacles.waiting_for(facts)}".rstrip()
    message = f"Not done within spec.activeDeadlineSeconds ({seconds} s). {why}"
    return Verdict(status=ending.failed(facts.status, "DeadlineExceeded", message, facts.now))
