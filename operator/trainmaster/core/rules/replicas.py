"""The replicas that should exist are created; those that should not are deleted."""

from trainmaster.core.actions import Action, CreateReplica, CreateService, DeleteReplica
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import Verdict


def create_and_delete(facts: Facts) -> Verdict:
    """Level-triggered: what is there already is left alone."""
    actions: list[Action] = [] if facts.observed.service else [CreateService()]
    actions += [CreateReplica(slot.role, slot.index, slot.incarnation) for slot in facts.slots if slot.replica is None]
    wanted = {slot.replica.uid for slot in facts.slots if slot.replica}
    actions += [
        DeleteReplica(replica.name, replica.uid)
        for replica in facts.observed.replicas
        if (replica.alive or replica.lingering) and replica.uid not in wanted
    ]
    return Verdict(actions=tuple(actions))
