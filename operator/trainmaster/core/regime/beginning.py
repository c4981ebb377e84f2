"""Decide until when the beginning of the present attempt is put off."""

from datetime import datetime

from trainmaster.core.failures import budgets
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import phases


def held_until(facts: Facts) -> datetime | None:
    """Return until when the next attempt is put off after a failure that needs time to pass; None: it may begin."""
    if facts.status.phase not in phases.GATHERING:
        return None
    until = budgets.restart_at(facts.job, facts.status.restarts)
    came_true = until is not None and facts.status.restarts[-1].time <= facts.now < until
    return until if came_true else None
