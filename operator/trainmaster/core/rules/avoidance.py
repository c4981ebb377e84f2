"""Avoid a node on which this job fails again and again, for a while: new pods keep away from it.

This is written before any pod is made for it, with reason and expiry (`.status.avoidedNodes`); the platform renders it
as node affinity (cluster/affinity.py). Disruptions never count, nor do failures while the rest of the job's nodes fail
as much. A member that starts again alone is moved alone; replicas that train stay where they are. If the cluster has no
room elsewhere the job does not wait for it: the node is used all the same. A node is also avoided on which a replica
cannot even start (rules/elsewhere.py), or from which nothing is heard any more (situation/unreachable.py).
"""

import dataclasses
from collections import Counter

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import avoided, classes
from trainmaster.core.situation import clocks
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states.observed import ReplicaPhase
from trainmaster.core.states.verdict import NOTHING, Verdict

FAILURES = 3  # on one node ...
WINDOW_SECONDS = 3600  # ... within this time
PATIENCE_SECONDS = 60  # how long pods may stay unschedulable because of it


def keep_away(facts: Facts) -> Verdict:
    """Drop what has expired, lift what leaves no room, avoid a node that is due; else look again when one may be."""
    nodes = facts.status.avoided_nodes
    latest = figures.later(facts.now, avoided.AVOIDED_SECONDS)  # a clock that was set back makes no time longer
    kept = tuple(
        node if node.until <= latest else dataclasses.replace(node, until=latest)
        for node in nodes
        if facts.now < node.until
    )
    if kept != nodes:
        return Verdict(status=dataclasses.replace(facts.status, avoided_nodes=kept))
    stuck = [slot for slot in (*facts.wanted, *facts.spares) if _finds_no_place(facts, slot)]
    if avoided.in_force(facts.status) and stuck:
        replica = stuck[0].replica
        told = replica.obstacle.since if replica and replica.obstacle else None
        # As the scheduler says, else since the pod was made; neither by a clock that is far ahead.
        times = [figures.moment(one) for one in (told, replica.created if replica else None) if one is not None]
        known = [time for time in (clocks.past(one, facts.now) for one in times) if time]
        late = figures.later(known[0] if known else facts.incomplete_since, PATIENCE_SECONDS)
        return Verdict(status=_lifted(facts, stuck)) if facts.now >= late else Verdict(wake_at=late)
    found = _noticed(facts)
    if found:
        return Verdict(status=found)
    return Verdict(wake_at=min(node.until for node in nodes)) if nodes else NOTHING


def _noticed(facts: Facts) -> TrainingJobStatus | None:
    """Return the status with a failing node avoided and the replicas on it moved away; None where none is due.

    Only replicas that have not been told to run again are moved, so that the move costs no further restart.
    """
    free = facts.regime.to_move()
    stayed = facts.regime.to_move_at_once(free)
    if stayed:
        named = ", ".join(slot.key for slot in stayed)
        return avoided.moved(facts, stayed, f"{named} leaves a node that is avoided.")
    failures = _by_node(facts) if free else Counter()
    blaming = [line for line in facts.status.restarts if classes.class_of(line.failure_class).blames_node]
    for line in reversed(blaming):
        node = line.node or ""
        leaving = [slot for slot in free if slot.replica and slot.replica.node == node]
        others = sum(count for other, count in failures.items() if other != node)
        many = failures[node] >= FAILURES and others < failures[node]
        if line.seconds_lost is None and leaving and many and avoided.has_another(facts, node):
            within = figures.duration(WINDOW_SECONDS)
            reason = f"{failures[node]} failures of this job within {within}, the last one: "
            return avoided.avoiding(facts, node, reason + figures.sentence(line.evidence or ""), leaving)
    return None


def _by_node(facts: Facts) -> Counter[str]:
    """Return the number of recent failures that nodes are blamed for, without nodes that are avoided already."""
    known, count = {node.node for node in facts.status.avoided_nodes}, Counter[str]()
    for line in facts.status.restarts:
        age = (facts.now - line.time).total_seconds()
        if line.node and line.node not in known and classes.class_of(line.failure_class).blames_node:
            count[line.node] += 0 <= age < WINDOW_SECONDS
    return count


def _finds_no_place(facts: Facts, slot: Slot) -> bool:
    """Return whether the scheduler names affinity as an obstacle, and the slot's replica may be recreated freely."""
    replica = slot.replica
    if replica is None or not replica.alive or replica.phase != ReplicaPhase.PENDING:  # true of nearly all
        return False
    if facts.regime.may_train(slot):
        return False
    return bool(
        replica.obstacle and replica.obstacle.reason == "Unschedulable" and "affinity" in replica.obstacle.message
    )


def _lifted(facts: Facts, stuck: list[Slot]) -> TrainingJobStatus:
    """Return the status with all avoidance lifted: the pods that found no place are recreated, without the affinity."""
    told = stuck[0].replica.obstacle.message if stuck[0].replica and stuck[0].replica.obstacle else ""
    reason = f"Lifted, for there is no room elsewhere: {figures.sentence(told)}"
    nodes = tuple(
        node if node.lifted else dataclasses.replace(node, lifted=True, reason=reason)
        for node in facts.status.avoided_nodes
    )
    return dataclasses.replace(facts.status, avoided_nodes=nodes, incarnations=facts.replacing(stuck), message=reason)
