"""The decision: the visible order of the rules, and nothing else.

Level-triggered: after any event, crash or restart the same facts give the same answer. The loop calls `decide`,
writes the status, and acts; a change of memory is written before anything acts on it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import events, report
from trainmaster.core.actions import Action, PostEvent
from trainmaster.core.facts import Facts
from trainmaster.core.observed import Observed
from trainmaster.core.rules import (
    acceptance,
    avoidance,
    causes,
    completion,
    deadline,
    elasticity,
    elsewhere,
    finished,
    losses,
    members,
    obstacles,
    orders,
    replicas,
    resizing,
    restarts,
    revised,
    rewound,
    standby,
    suspension,
)

# The first rule that changes the memory ends the turn; a final one too. The others add up.
RULES = (
    finished.finish,  # terminal is terminal: only goodbyes and the TTL are left
    acceptance.accept,  # or refused, before anything is made
    rewound.wind_on,  # before all that goes by attempt and incarnations
    suspension.suspend,
    completion.complete,  # before the deadline: who finished in time has finished
    deadline.expire,
    resizing.resize,  # before losses: a worker that is not there yet is not lost
    members.look_after,  # where members come and go one by one, instead of the next four
    losses.replace_lost,  # before ranks: a lost pod explains its peers' errors
    causes.name_the_cause,
    restarts.restart_ranks,
    restarts.restart_drifted,
    revised.take_spec,  # after all that asks why the last attempt ended: who is made anew tells nothing any more
    avoidance.keep_away,
    standby.look_after,  # before elasticity: a spare is better than a smaller group
    elasticity.fit,  # after losses: a worker that is lost has its minute to come back
    replicas.take_other_names,
    elsewhere.leave_node,  # before the job is given up: it may be the node alone
    obstacles.give_up,
    replicas.create_and_delete,
    orders.give,
)


_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Decision:
    """What to do now. `status` is to be written if it differs from the job's; then `events`, then `actions`."""

    status: TrainingJobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[PostEvent, ...] = ()
    wake_at: datetime | None = None
    again: bool = False  # the memory changed: decide anew as soon as it is written


def decide(job: TrainingJob, observed: Observed, now: datetime) -> Decision:
    """What should happen to `job`, given what exists and the time."""
    facts = Facts(job, observed, now.replace(microsecond=now.microsecond // 1000 * 1000))  # as a status keeps it
    soonest = facts.now + _TICK  # what is due within the present millisecond is not due yet, as facts see the time
    actions: list[Action] = []
    wakes: list[datetime] = []
    for rule in RULES:
        verdict = rule(facts)
        if verdict.status is not None:
            status = report.describe(facts, verdict.status)
            return Decision(status, events=events.between(job, status), again=True)
        actions += verdict.actions
        wakes += [verdict.wake_at] if verdict.wake_at else []
        if verdict.final:
            break
    status = report.describe(facts, facts.status)
    if report.holds_back(facts, status):
        status = job.status
    wakes += [wake for wake in (report.next_refresh(facts, status),) if wake]
    wake_at = max(min(wakes), soonest) if wakes else None
    return Decision(status, tuple(actions), events.between(job, status), wake_at)
