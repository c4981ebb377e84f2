"""Keep the restart ledger, `status.restarts`: what its entries say, and how they are closed.

The budget is computed from the ledger, so every failure that counts is also shown.
"""

import dataclasses
from datetime import datetime

from trainmaster.api.job_states import TERMINAL, Phase, RestartDecision
from trainmaster.api.status import MAX_RESTARTS_KEPT, RestartRecord, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import classes
from trainmaster.core.failures.failures import Failure
from trainmaster.core.situation.facts import Facts

Lines = tuple[RestartRecord, ...]

# A rank that was killed and its whole replica that was lost within this time are one failure.
FIRST_SIGN_SECONDS = 60


def is_open(status: TrainingJobStatus) -> bool:
    """Return whether training has not gone on yet after the newest failure."""
    last = status.restarts[-1] if status.restarts else None
    return last is not None and last.seconds_lost is None


def unexplained(status: TrainingJobStatus) -> RestartRecord | None:
    """Return the newest line while it has only a survivor's error and training has not gone on since; else None."""
    if status.phase == Phase.RUNNING:
        return None  # training has gone on, except for a member that starts again alone
    last = status.restarts[-1] if status.restarts else None
    return last if last and last.failure_class in classes.SYMPTOMS and last.seconds_lost is None else None


def undecided(status: TrainingJobStatus) -> RestartRecord | None:
    """Return the newest line while no rank may start, because its cause decides whether to go on; else None."""
    symptom = unexplained(status)
    return symptom if symptom and symptom.decision == RestartDecision.WAIT else None


def explained_by(facts: Facts, failure: Failure) -> RestartRecord | None:
    """Return the newest line where `failure` is its cause: it has a survivor's error, or the first sign of a loss.

    What ends a pod or a node kills one process after another, and an agent may report the first at once.
    """
    symptom = unexplained(facts.status)
    last = facts.status.restarts[-1] if is_open(facts.status) else None
    if symptom or last is None or last.failure_class != classes.SIGNAL or facts.status.phase == Phase.RUNNING:
        return symptom
    own = (last.replica or "").startswith(f"{failure.replica} rank ")
    return last if own and last.time <= facts.now < figures.later(last.time, FIRST_SIGN_SECONDS) else None


def since_the_last_try(facts: Facts, lines: Lines) -> list[int]:
    """Return the places of the lines since training went on last. Operators' clocks differ, so they may lie apart."""
    since = facts.status.running_time
    return [place for place, line in enumerate(lines) if since is None or line.time >= since]


def noted(status: TrainingJobStatus, sentence: str) -> TrainingJobStatus:
    """Return the status with one more sentence on what follows the newest failure; unchanged if the job has ended."""
    if not sentence or status.phase in TERMINAL:
        return status
    line = status.restarts[-1]
    line = dataclasses.replace(line, why=f"{line.why} {sentence}")
    return dataclasses.replace(status, restarts=(*status.restarts[:-1], line), message=f"{status.message} {sentence}")


def overtaken(status: TrainingJobStatus, by: str) -> TrainingJobStatus:
    """Return the status where the job is `by` (resized, suspended) before a symptom's cause is known.

    The cause may never be reported then, so no replica is blamed: the line costs no budget.
    """
    symptom = unexplained(status)
    if symptom is None:
        return status
    why = f"Its cause was not heard before the job was {by}; it costs no restart budget."
    line = dataclasses.replace(symptom, failure_class=classes.ROSTER_CHANGED, decision=RestartDecision.RESTART, why=why)
    count = status.restart_count + (symptom.decision == RestartDecision.WAIT)
    return dataclasses.replace(status, restarts=(*status.restarts[:-1], line), restart_count=count)


def left_behind(status: TrainingJobStatus) -> Lines:
    """Return the lines for another run that goes on from `status`: open lines end at the time of its last write.

    No rank trained since; that is no failure's cost, and the next run has nothing to wait for.
    """
    accounts = (status.goodput, status.progress, *status.restarts)
    written = [account.time for account in accounts if account and account.time]
    return all_closed(status.restarts, max(written)) if written else ()


def all_closed(lines: Lines, now: datetime) -> Lines:
    """Return the lines with the open ones closed at `now`: the newest, or those of members that were away."""
    return tuple(closed(line, now) if line.seconds_lost is None else line for line in lines)


def closed(line: RestartRecord, now: datetime) -> RestartRecord:
    """Return the line with the time that passed until `now`, when training goes on."""
    seconds = max(0.0, (now - line.time).total_seconds()) + (line.seconds_to_detect or 0.0)
    return dataclasses.replace(line, seconds_lost=seconds)


def kept(lines: Lines) -> Lines:
    """Return at most MAX_RESTARTS_KEPT lines. Those that count against the budget are dropped last.

    Stacks are long: only the newest ones are kept.
    """
    hung = [index for index, line in enumerate(lines) if line.stacks]
    kept = [dataclasses.replace(line, stacks=None) if index in hung[:-1] else line for index, line in enumerate(lines)]
    while len(kept) > MAX_RESTARTS_KEPT:
        free = (index for index, line in enumerate(kept[:-1]) if line.failure_class in classes.FREE)
        del kept[next(free, 0)]
    return tuple(kept)
