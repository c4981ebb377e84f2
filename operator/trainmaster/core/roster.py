"""From the group to its roster: ranks, world size and where the attempt meets.

The roster of an attempt is a pure function of the replicas and of what the first worker's agent says, so an
operator that was killed in mid-start derives the same one again.
"""

from trainmaster.core.facts import Facts, Slot, began
from trainmaster.wire.messages import Heartbeat, Member, Rendezvous, Roster


def roster(facts: Facts) -> Roster | None:
    """The roster of the present attempt, or None while somebody is missing."""
    if not facts.complete:
        return None
    members, rank = [], 0
    for slot in facts.slots:
        members.append(_member(slot, rank))
        rank += slot.ranks
    first = facts.slots[0]
    meeting = _rendezvous(first.heartbeat, facts.status.attempt)
    return Roster(facts.status.attempt, tuple(members), _address(first), meeting) if meeting else None


def _member(slot: Slot, first_rank: int) -> Member:
    return Member(slot.role, slot.index, slot.incarnation, _address(slot), first_rank, slot.ranks)


def _address(slot: Slot) -> str:
    return slot.replica.address if slot.replica else ""


def _rendezvous(heartbeat: Heartbeat | None, attempt: int) -> Rendezvous | None:
    """Where `attempt` meets: the place in use if it has begun, else the agent's offer.

    The first worker may have finished before the others: its offer is for the attempt after this one.
    """
    if heartbeat is None:
        return None
    return heartbeat.rendezvous if began(heartbeat, attempt) else heartbeat.offer
