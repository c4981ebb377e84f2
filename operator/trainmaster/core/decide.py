"""Decide what happens to a job: the visible order of the rules, and nothing else.

Level-triggered: after any event, crash or restart the same facts give the same answer. The loop calls `decide`, writes
the status, and acts; a change of memory is written before anything acts on it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.regime.choice import look
from trainmaster.core.report import events
from trainmaster.core.report import job_status as report
from trainmaster.core.rules import (
    acceptance,
    avoidance,
    causes,
    completion,
    deadline,
    elasticity,
    elsewhere,
    finished,
    giving_up,
    losses,
    members,
    orders,
    replicas,
    resizing,
    restarts,
    revised,
    rewound,
    standby,
    suspension,
)
from trainmaster.core.states.actions import Action, PostEvent
from trainmaster.core.states.observed import Observed

# The first rule that changes the memory ends the turn; a final one too. Actions of the others add up.
RULES = (
    finished.finish,  # terminal is terminal: only exit orders and the TTL are left
    acceptance.accept,  # before any replica is made, as the job may be refused
    rewound.wind_on,  # before all rules that use attempt and incarnations
    suspension.suspend,
    completion.complete,  # before the deadline: a job that finished in time has succeeded
    deadline.expire,
    resizing.resize,  # before losses: a worker that is not there yet is not lost
    members.look_after,  # where members come and go one by one, instead of the next four
    losses.replace_lost,  # before ranks: a lost pod explains its peers' errors
    causes.name_the_cause,
    restarts.restart_ranks,
    restarts.restart_drifted,
    revised.take_spec,  # after the rules that ask why the last attempt ended: a new replica cannot tell
    avoidance.keep_away,
    standby.look_after,  # before elasticity: a spare is better than a smaller group
    elasticity.fit,  # after losses: a worker that is lost has its minute to come back
    replicas.take_other_names,
    elsewhere.leave_node,  # before the job is given up: only the node may be the cause
    giving_up.give_up,
    replicas.create_and_delete,
    orders.give,
)


_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Decision:
    """Hold what to do now. `status` is written if it differs from the job's; then `events`, then `actions` follow."""

    status: TrainingJobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[PostEvent, ...] = ()
    wake_at: datetime | None = None
    again: bool = False  # the memory changed: decide anew as soon as it is written


def decide(job: TrainingJob, observed: Observed, now: datetime) -> Decision:
    """Return what should happen to `job`, given what exists and the time."""
    facts = look(job, observed, now.replace(microsecond=now.microsecond // 1000 * 1000))  # as precise as in a status
    soonest = facts.now + _TICK  # facts round the time down, so what is due within this millisecond is not due yet
    actions: list[Action] = []
    wakes: list[datetime] = []
    for rule in RULES:
        verdict = rule(facts)
        if verdict.status is not None:
            status = report.describe(facts, verdict.status)
            return Decision(status, events=events.between(facts, status), again=True)
        actions += verdict.actions
        wakes += [verdict.wake_at] if verdict.wake_at else []
        if verdict.final:
            break
    status = report.describe(facts, facts.status)
    if report.holds_back(facts, status):
        status = job.status
    wakes += [wake for wake in (report.next_refresh(facts, status),) if wake]
    wake_at = max(min(wakes), soonest) if wakes else None
    return Decision(status, tuple(actions), events.between(facts, status), wake_at)
