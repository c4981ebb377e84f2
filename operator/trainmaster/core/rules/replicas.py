"""The replicas that should exist are created; those that should not are deleted."""

from trainmaster.core.actions import Action, CreateReplica, CreateService, DeleteReplica
from trainmaster.core.facts import Facts
from trainmaster.core.observed import Replica
from trainmaster.core.verdict import Verdict
from trainmaster.wire import names


def create_and_delete(facts: Facts) -> Verdict:
    """Level-triggered: what is there already is left alone."""
    actions: list[Action] = [] if facts.observed.service else [CreateService()]
    actions += [CreateReplica(slot.role, slot.index, slot.incarnation) for slot in facts.slots if slot.replica is None]
    wanted = {slot.replica.uid for slot in facts.slots if slot.replica}
    actions += [
        DeleteReplica(replica.name, replica.uid)
        for replica in facts.observed.replicas
        if (replica.alive or replica.lingering) and replica.uid not in wanted and not _is_newer(facts, replica)
    ]
    return Verdict(actions=tuple(actions))


def _is_newer(facts: Facts, replica: Replica) -> bool:
    """A number that our status does not know yet: then the status that we see is old, and nothing to act on."""
    return replica.incarnation > facts.status.incarnations.get(names.replica_key(replica.role, replica.index), 0)
