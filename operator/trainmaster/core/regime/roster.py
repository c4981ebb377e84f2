"""Compute the roster of a group: ranks, world size and where the attempt meets.

The roster of an attempt is a pure function of the replicas and of what the first worker's agent reports, so an operator
that was killed in mid-start derives the same one again.
"""

import dataclasses
from collections.abc import Sequence

from trainmaster.core.failures import resumption
from trainmaster.core.regime import membership
from trainmaster.core.situation.facts import Facts, began
from trainmaster.core.situation.slots import Slot
from trainmaster.wire import frameworks, names
from trainmaster.wire.messages import Heartbeat, Member, Rendezvous, Roster


def of_group(facts: Facts) -> Roster | None:
    """Return the roster of a group of all slots; None while one of them is missing."""
    if facts.missing:
        return None
    members, rank = [], 0
    has_ports = frameworks.has_ports(facts.job.spec.training.framework)  # a port for each rank
    for slot in facts.slots:
        offer = door(facts, slot) if has_ports else None
        if has_ports and (offer is None or len(offer.ports) != slot.ranks):  # its agent offers none yet
            return None
        member = _member(slot, rank)
        members.append(dataclasses.replace(member, ports=offer.ports) if offer else member)
        rank += slot.ranks
    first = facts.slots[0]
    place = meeting(facts)
    before = facts.status.resume_before
    doubted = resumption.doubted_attempt(facts.status)
    return Roster(facts.status.attempt, tuple(members), _address(first), place, before, doubted) if place else None


def of_members(facts: Facts, present: Sequence[Slot], place: Rendezvous | None) -> Roster | None:
    """Return the roster of members that come and go, of whom these are present; None: it cannot be said yet."""
    if place is None or not present or not all(door(facts, slot) for slot in present):
        return None
    keys, ranks = {slot.key for slot in present}, membership.first_ranks(facts)
    members = []
    for slot in facts.slots:
        if slot.key in keys:
            offer, start = door(facts, slot), membership.start_of(facts, slot)
            ports = offer.ports if offer else ()
            members.append(dataclasses.replace(_member(slot, ranks[slot.key]), ports=ports, start=start))
        elif slot.role == names.PARAMETER_SERVER:  # it stays in without an address: the model is split over all
            members.append(dataclasses.replace(_member(slot, ranks[slot.key]), address=""))
    before = facts.status.resume_before
    doubted = resumption.doubted_attempt(facts.status)
    address = _address(facts.slots[0])
    workers = sum(slot.ranks for slot in facts.slots if slot.role == names.WORKER)
    return Roster(
        facts.status.attempt, tuple(members), address, place, before, doubted, independent=True, workers=workers
    )


def door(facts: Facts, slot: Slot) -> Rendezvous | None:
    """Return the address in use where it trains at this start, else the one its agent offers for the next; or None."""
    attempt, beat = facts.status.attempt, slot.heartbeat
    if beat is None:
        return None
    if began(beat, attempt) and (beat.start or 0) == membership.start_of(facts, slot):
        return beat.rendezvous
    return beat.offer if _is_at_hand(beat, attempt) else None


def _member(slot: Slot, first_rank: int) -> Member:
    return Member(slot.role, slot.index, slot.incarnation, _address(slot), first_rank, slot.ranks)


def _address(slot: Slot) -> str:
    return slot.replica.address if slot.replica else ""


def meeting(facts: Facts) -> Rendezvous | None:
    """Return where the attempt meets: at the first worker, without ports, as each member has its own. None: no offer.

    It may have finished before the others: its offer is for the attempt after this one.
    """
    offer = door(facts, facts.slots[0])
    return dataclasses.replace(offer, ports=()) if offer else None


def _is_at_hand(heartbeat: Heartbeat, attempt: int) -> bool:
    """Return whether the offer is good for `attempt`: an attempt that this heartbeat does not know may have taken it.

    Then the agent is told to wait, and reports with that what it offers now. Before the first attempt all offers are
    new.
    """
    return heartbeat.attempt == attempt or began(heartbeat, attempt - 1) or heartbeat.attempt == attempt - 1 == 0
