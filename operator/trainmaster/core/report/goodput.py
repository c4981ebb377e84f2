"""Account for a job's time: the six accounts in `.status.goodput` add up to the wall time.

Level-triggered: whenever a status is written, the time since the last one is booked on the account of the phase that
was written then. So nothing is counted twice or left out, however often operators die in between, and a job costs no
write for it. Clocks that jump back book nothing. The accounts begin with the job and go on over suspensions, although
`start_time` begins anew with each (the deadline counts from it).

Lost work: when training goes on from an earlier step than it had reached, in a new attempt or after servers were lost
with their copies, the time of the steps in between moves there from the account of training, at the speed of the try
that had trained them. While a server is away no worker trains: that is recovering. The time in which a group stood
still before it was noticed (a hang, a lost node) also moves to recovering.

A script is in phase Running as soon as its processes are. Until its ranks say when their first step began, and forever
where they never do, that is training; then the seconds before it move to starting, or to recovering after a failure.
"""

import dataclasses
from datetime import datetime
from typing import Any

from trainmaster.api.job_states import Phase
from trainmaster.api.status import Goodput, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import ledger, resumption
from trainmaster.core.report import conditions
from trainmaster.core.situation.facts import Facts
from trainmaster.wire import names

WAITING, STARTING, TRAINING, RECOVERING = "waiting", "starting", "training", "recovering"

# The account of a phase. Starting is part of a recovery where a failure made it necessary.
_ACCOUNTS = {
    Phase.PENDING: WAITING,
    Phase.SUSPENDED: WAITING,
    Phase.STARTING: STARTING,
    Phase.RESIZING: STARTING,
    Phase.RESTARTING: RECOVERING,
    Phase.RUNNING: TRAINING,
}


def current_goodput(facts: Facts, status: TrainingJobStatus) -> Goodput:
    """Return the accounts as they stand when `status` is written now."""
    began = facts.status.start_time or facts.now
    booked = _booked(facts, facts.status.goodput or Goodput(since=began, time=began))
    failed = facts.status.phase == Phase.RUNNING != status.phase and status.restarts != facts.status.restarts
    if failed and status.restarts:  # what it cost before it was seen moves from training to recovering
        still = min(status.restarts[-1].seconds_to_detect or 0.0, booked.try_training)
        booked = _add(booked, facts.now, training=-still, try_training=-still, recovering=still)
    is_over = status.phase == Phase.SUCCEEDED and not facts.status.finished and facts.resumed_step is not None
    if not (_trains(facts, status) or is_over):
        return booked
    if not _trains(facts, facts.status):
        went_on = _went_on(facts, booked, resumption.reached(facts), resumption.resumed_at(facts))
        return dataclasses.replace(went_on, try_saving=0.0)  # its ranks are new
    # Lines of members that are over now, and were not before. Servers lost with their copies set all back.
    before = facts.status.restarts
    opened = {place for place, line in enumerate(before) if line.seconds_lost is None}
    over = [line for place, line in enumerate(status.restarts) if place in opened and line.seconds_lost is not None]
    of_members = [line for line in over if line.members is not None]
    set_back = max(of_members, key=lambda line: line.steps_lost or 0, default=None)
    if set_back is None or not set_back.steps_lost:
        return booked
    return _went_on(facts, booked, set_back.step, set_back.step - set_back.steps_lost)


def _trains(facts: Facts, status: TrainingJobStatus) -> bool:
    """Return whether steps are made, by the written status: a script that has failed tells its next step later."""
    late = facts.regime.tells_steps_late() and ledger.is_open(status)
    return conditions.trains(status) and not late


def _booked(facts: Facts, before: Goodput) -> Goodput:
    """Return the accounts with the time since the last write added."""
    seconds = max(0.0, (facts.now - (before.time or facts.now)).total_seconds())
    account = _ACCOUNTS.get(facts.status.phase)
    if account is None:
        return before
    if account == TRAINING and not _trains(facts, facts.status):
        account = STARTING
    if account == STARTING and ledger.is_open(facts.status):
        account = RECOVERING
    missed = [key for line in facts.status.restarts if line.seconds_lost is None for key in line.members or ()]
    if account == TRAINING and any(key.startswith(names.PARAMETER_SERVER) for key in missed):
        account = RECOVERING  # no step can end: each needs all servers
    told = (figures.seconds(rank.start_seconds) for rank in facts.ranks if rank.start_seconds is not None)
    start = min(told, default=0.0)  # of the rank that was started last: they take their first step together
    if account != TRAINING:
        idle = before.try_starting + seconds if facts.status.phase == Phase.RUNNING else 0.0
        return dataclasses.replace(
            _add(before, facts.now, **{account: seconds}), try_starting=round(max(idle, start), 3)
        )
    # Ranks report for how many seconds of the try they stood still to save; the slowest counts.
    saved = max((figures.seconds(rank.save_seconds or 0.0) for rank in facts.ranks), default=0.0)
    saving = round(min(max(saved - before.try_saving, 0.0), seconds), 3)
    training = seconds - saving
    booked = _add(before, facts.now, training=training, saving=saving, try_training=training, try_saving=saving)
    # The seconds before its first step, as the ranks tell them, were no training.
    more = round(min(max(start - booked.try_starting, 0.0), booked.try_training), 3)
    lines = facts.status.restarts
    account = RECOVERING if lines and lines[-1].attempt == facts.status.attempt - 1 else STARTING
    return _add(booked, facts.now, training=-more, try_training=-more, try_starting=more, **{account: more})


def _went_on(facts: Facts, booked: Goodput, reached: int, resumed: int) -> Goodput:
    """Return the accounts at the beginning of a try. What the last one trained beyond its first step was lost."""
    begun, lost = booked.try_from, 0.0  # the seconds that steps `resumed + 1` to `reached` took
    if reached > resumed and reached > begun:
        lost = booked.try_training * min(1.0, (reached - resumed) / (reached - begun))
    if reached > resumed and resumed < begun:  # the checkpoint that the try had begun from was not usable any more
        lost += (booked.training - booked.try_training) * (begun - resumed) / begun
    lost = round(min(max(lost, 0.0), booked.training), 3)
    moved = _add(booked, facts.now, training=-lost, lost_work=lost)
    return dataclasses.replace(moved, try_from=resumed, try_training=0.0)


def _add(before: Goodput, now: datetime, **seconds: float) -> Goodput:
    sums: dict[str, Any] = {
        name: round(figures.seconds(getattr(before, name) + more), 3) for name, more in seconds.items()
    }
    return dataclasses.replace(before, **sums, time=now)
