"""Find out which members take part, where members come and go one by one (ParameterServer, Gossip).

The members are written in `status.starts` before any agent is told.
"""

import dataclasses
from collections.abc import Collection
from datetime import datetime

from trainmaster.core import figures
from trainmaster.core.failures import budgets
from trainmaster.core.situation import clocks
from trainmaster.core.situation.facts import Facts, began
from trainmaster.core.situation.slots import Slot
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import Rendezvous

# A member whose agent does not report to a new operator is left out of the roster after this.
SILENCE_SECONDS = 30


def members(facts: Facts) -> tuple[Slot, ...]:
    """Return the slots that were told to take part in this attempt."""
    return tuple(slot for slot in facts.slots if slot.key in facts.status.starts)


def would_mix(facts: Facts) -> bool:
    """Return whether a member that waits to join was made of another spec than members that train."""
    if not any(slot.stale for slot in members(facts)):
        return False
    return any(slot.ready and not slot.stale and slot.key not in facts.status.starts for slot in facts.regime.apart())


def start_of(facts: Facts, slot: Slot) -> int:
    """Return the number of this member's start within the attempt."""
    return facts.status.starts.get(slot.key, 0)


def is_at(facts: Facts, slot: Slot, *states: AgentState) -> bool:
    """Return whether its agent reports one of `states` of the present attempt and start."""
    beat = slot.heartbeat
    if beat is None or beat.state not in states or beat.attempt != facts.status.attempt:
        return False
    return (beat.start or 0) == start_of(facts, slot)


def trains(facts: Facts, slot: Slot) -> bool:
    """Return whether its ranks run, or have ended well."""
    return is_at(facts, slot, AgentState.RUNNING, AgentState.FINISHED)


def can_go_on(facts: Facts, without: Collection[str]) -> bool:
    """Return whether a member that has the model is left: a server, or without servers any member.

    A member whose agent has not reported to this operator yet counts as training.
    """
    left = [slot for slot in members(facts) if slot.key not in without and slot.replica and slot.replica.alive]
    knowing = [slot for slot in left if slot.heartbeat is None or trains(facts, slot)]
    return any(slot.role == names.PARAMETER_SERVER or not facts.job.spec.servers for slot in knowing)


def meeting(facts: Facts) -> Rendezvous | None:
    """Return port and key of the attempt from a member that began it, as the first worker may be newer; or None."""
    beats = (slot.heartbeat for slot in members(facts))
    found = (beat.rendezvous for beat in beats if beat and beat.rendezvous and began(beat, facts.status.attempt))
    place = next(found, None)
    return dataclasses.replace(place, ports=()) if place else None


def silent_until(facts: Facts) -> datetime | None:
    """Return until when to wait for members that have not reported to this operator, before they are left out."""
    waiting = any(slot.heartbeat is None and slot.replica and slot.replica.alive for slot in members(facts))
    began = clocks.past(figures.moment(facts.observed.began), facts.now)
    end = figures.later(began, SILENCE_SECONDS) if began else None
    return end if waiting and end and facts.now < end else None


def held(facts: Facts) -> dict[str, datetime]:
    """Return the members whose next start is put off after a failure that needs time to pass, and until when."""
    found: dict[str, datetime] = {}
    lines = facts.status.restarts
    for number, line in enumerate(lines, start=1):
        until = budgets.restart_at(facts.job, lines[:number]) if line.members and line.time <= facts.now else None
        if until and facts.now < until:
            found.update(dict.fromkeys(line.members or (), until))
    return found


def is_back(facts: Facts, slot: Slot) -> bool:
    """Return whether its ranks run and are past loading, or have ended well. A script does not report that it loads."""
    if facts.job.spec.training.command or is_at(facts, slot, AgentState.FINISHED):
        return trains(facts, slot)
    return trains(facts, slot) and slot.past_loading


def first_ranks(facts: Facts) -> dict[str, int]:
    """Return each slot's first rank: founding workers, founding servers, then workers added while training."""
    each = facts.job.spec.ranks_each
    founders = facts.status.founders
    workers = founders.workers if founders else facts.job.spec.workers.replicas
    servers = founders.parameter_servers if founders else facts.job.spec.servers
    found = {}
    for slot in facts.slots:
        if slot.role == names.PARAMETER_SERVER:
            found[slot.key] = workers * each + slot.index
        else:
            found[slot.key] = slot.index * each + (servers if slot.index >= workers else 0)
    return found
