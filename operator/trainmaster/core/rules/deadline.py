"""`spec.activeDeadlineSeconds`: the time that the whole job may take, waiting included."""

from trainmaster.core import ending, figures
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict


def expire(facts: Facts) -> Verdict:
    """Fail the job when its time is up; else come back then."""
    seconds, started = facts.job.spec.active_deadline_seconds, facts.status.start_time
    if seconds is None or started is None:
        return NOTHING
    end = figures.later(started, seconds)
    if facts.now < end:
        return Verdict(wake_at=end)
    message = f"Not done within spec.activeDeadlineSeconds ({seconds} s). Raise it, or train fewer steps."
    return Verdict(status=ending.failed(facts.status, "DeadlineExceeded", message, facts.now))
