"""Keep the nodes that new pods of a job avoid, in `.status.avoidedNodes`: each with its reason and expiry.

Why a node is avoided is decided by rules: rules/avoidance.py, rules/elsewhere.py and rules/losses.py.
"""

import dataclasses
from collections.abc import Sequence

from trainmaster.api.status import TrainingJobStatus
from trainmaster.api.status_of_pods import AvoidedNode
from trainmaster.core import figures
from trainmaster.core.situation import spares, unreachable
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot

AVOIDED_SECONDS = 3600
CUT_OFF_SECONDS = 600  # a dead node has left the cluster by then


def in_force(status: TrainingJobStatus) -> tuple[AvoidedNode, ...]:
    """Return the nodes that new pods keep away from."""
    return tuple(node for node in status.avoided_nodes if not node.lifted)


def avoiding(facts: Facts, node: str, reason: str, leaving: list[Slot], said: str = "") -> TrainingJobStatus:
    """Return the status with the node avoided, and other replicas for those that leave it."""
    entry = AvoidedNode(node=node, reason=reason, until=figures.later(facts.now, AVOIDED_SECONDS))
    known = (*facts.status.avoided_nodes, entry)
    sentence = f"{said}Node {node} is avoided for {figures.duration(AVOIDED_SECONDS)}."
    return dataclasses.replace(moved(facts, leaving, sentence), avoided_nodes=known)


def with_cut_off(facts: Facts, lost: Sequence[Slot]) -> tuple[AvoidedNode, ...]:
    """Return the avoided nodes with those of silent replicas on which the cluster sees nothing wrong yet.

    Else the cluster would place their successors there.
    """
    silent = [slot.replica for slot in lost if slot.replica and slot.replica.disruption == unreachable.AGENT_CUT_OFF]
    known = {node.node for node in facts.status.avoided_nodes}
    told = {one.node: one.disruption_message for one in silent if one.node and one.node not in known}
    until = figures.later(facts.now, CUT_OFF_SECONDS)
    found = [
        AvoidedNode(node=node, reason=figures.sentence(why), until=until)
        for node, why in told.items()
        if has_another(facts, node)
    ]
    return (*facts.status.avoided_nodes, *found)


def moved(facts: Facts, leaving: Sequence[Slot], sentence: str) -> TrainingJobStatus:
    """Return the status with other replicas for these. A member joins again when its next replica is there."""
    nodes = {slot.replica.node for slot in leaving if slot.replica}
    beside = {slot.key for slot in facts.spares}
    exchange = spares.step_in(facts, [slot for slot in leaving if slot.key not in beside], barred=nodes)
    gone = {slot.key for slot in leaving}
    return dataclasses.replace(
        exchange.written(facts.status),
        incarnations=facts.replacing(leaving),
        starts={key: start for key, start in facts.status.starts.items() if key not in gone},
        message=f"{facts.status.message or ''} {sentence} {exchange.sentence}".strip(),
    )


def has_another(facts: Facts, node: str) -> bool:
    """Return whether the job uses another node that is not avoided: else there is nothing to compare, or to move to."""
    known = {avoided.node for avoided in facts.status.avoided_nodes}
    used = {slot.replica.node for slot in facts.slots if slot.replica and slot.replica.node}
    return bool(used - known - {node})
