"""Decide whether the present attempt may begin: everybody is there, and nothing puts it off."""

from datetime import datetime

from trainmaster.core.failures import budgets, ledger
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import phases


def may_run(facts: Facts) -> bool:
    """Return whether the order to run is given now. The phase Starting is written first."""
    return facts.regime.roster is not None and not ledger.undecided(facts.status) and held_until(facts) is None


def held_until(facts: Facts) -> datetime | None:
    """Return until when the next attempt is put off after a failure that needs time to pass; None: it may begin."""
    if facts.status.phase not in phases.GATHERING:
        return None
    until = budgets.restart_at(facts.job, facts.status.restarts)
    came_true = until is not None and facts.status.restarts[-1].time <= facts.now < until
    return until if came_true else None
