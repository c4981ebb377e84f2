"""Compute the roster of a group: ranks, world size and where the attempt meets.

The roster of an attempt is a pure function of the replicas and of what the first worker's agent reports, so an operator
that was killed in mid-start derives the same one again.
"""

import dataclasses
from collections.abc import Collection, Sequence

from trainmaster.core.failures import resumption
from trainmaster.core.regime import membership
from trainmaster.core.situation.facts import Facts, began
from trainmaster.core.situation.slots import Slot
from trainmaster.wire import frameworks, names
from trainmaster.wire.messages import Heartbeat, Member, Rendezvous, Roster


def of_group(facts: Facts) -> Roster | None:
    """Return the roster of a group of all slots; None while one of them is missing."""
    if not facts.complete:
        return None
    members, rank = [], 0
    for slot in facts.slots:
        member = _with_ports(facts, slot, _member(slot, rank))
        if member is None:
            return None
        members.append(member)
        rank += slot.ranks
    first = facts.slots[0]
    place = meeting(facts)
    before = facts.status.resume_before
    doubted = resumption.doubted_attempt(facts.status)
    return Roster(facts.status.attempt, tuple(members), _address(first), place, before, doubted) if place else None


def _with_ports(facts: Facts, slot: Slot, member: Member) -> Member | None:
    """Return the member with a port for each rank, where its framework needs them; None: its agent offers none yet."""
    if not frameworks.has_ports(facts.job.spec.training.framework):
        return member
    offer = door(facts, slot)
    return dataclasses.replace(member, ports=offer.ports) if offer and len(offer.ports) == member.ranks else None


def of_members(facts: Facts, present: Sequence[Slot], place: Rendezvous | None) -> Roster | None:
    """Return the roster of members that come and go, of whom these are present; None: it cannot be said yet."""
    if place is None or not present or not all(door(facts, slot) for slot in present):
        return None
    lines = _lines(facts, {slot.key for slot in present})
    before = facts.status.resume_before
    doubted = resumption.doubted_attempt(facts.status)
    address = _address(facts.slots[0])
    workers = sum(slot.ranks for slot in facts.slots if slot.role == names.WORKER)
    return Roster(facts.status.attempt, lines, address, place, before, doubted, independent=True, workers=workers)


def _lines(facts: Facts, present: Collection[str]) -> tuple[Member, ...]:
    """Return the members. A server that is away stays in, without an address: the model is split over all servers."""
    ranks = membership.first_ranks(facts)
    listed = [slot for slot in facts.slots if slot.key in present or slot.role == names.PARAMETER_SERVER]
    return tuple(
        _line(facts, slot, ranks[slot.key]) if slot.key in present else _away(_member(slot, ranks[slot.key]))
        for slot in listed
    )


def _away(member: Member) -> Member:
    return dataclasses.replace(member, address="")


def _line(facts: Facts, slot: Slot, first_rank: int) -> Member:
    offer = door(facts, slot)
    ports, start = offer.ports if offer else (), membership.start_of(facts, slot)
    return dataclasses.replace(_member(slot, first_rank), ports=ports, start=start)


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
