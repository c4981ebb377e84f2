"""Compute the roster of a group: ranks, world size and where the attempt meets.

The roster of an attempt is a pure function of the replicas and of what the first worker's agent reports, so an operator
that was killed in mid-start derives the same one again.
"""

import dataclasses
from collections.abc import Collection

from trainmaster.core.failures import ledger
from trainmaster.core.regime import membership
from trainmaster.core.situation.facts import Facts, Slot, began, once
from trainmaster.wire import frameworks, names
from trainmaster.wire.messages import Heartbeat, Member, Rendezvous, Roster


@once
def roster(facts: Facts) -> Roster | None:
    """Return the roster of the present attempt; None while a replica that it needs is missing."""
    if facts.job.spec.independent:
        return _of_members(facts)
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
    meeting = _rendezvous(facts)
    before = facts.status.resume_before
    doubted = ledger.doubted_attempt(facts.status)
    return Roster(facts.status.attempt, tuple(members), _address(first), meeting, before, doubted) if meeting else None


def _with_ports(facts: Facts, slot: Slot, member: Member) -> Member | None:
    """Return the member with a port for each rank, where its framework needs them; None: its agent offers none yet."""
    if not frameworks.has_ports(facts.job.spec.training.framework):
        return member
    door = _door(facts, slot)
    return dataclasses.replace(member, ports=door.ports) if door and len(door.ports) == member.ranks else None


def _of_members(facts: Facts) -> Roster | None:
    """Return the roster where members come and go: all at the start, later those that take part; None: not yet."""
    alone = membership.alone(facts)
    if membership.silent_until(facts) if alone else not facts.complete:
        return None
    held = membership.held(facts) if alone else {}
    present = [slot for slot in membership.members(facts) if _takes_part(facts, slot, held)] if alone else facts.slots
    place = membership.meeting(facts) if alone else _rendezvous(facts)
    if place is None or not present or not all(_door(facts, slot) for slot in present):
        return None
    lines = _lines(facts, {slot.key for slot in present})
    before = facts.status.resume_before
    doubted = ledger.doubted_attempt(facts.status)
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


def _takes_part(facts: Facts, slot: Slot, held: Collection[str]) -> bool:
    return slot.ready and slot.key not in held and _door(facts, slot) is not None


def _line(facts: Facts, slot: Slot, first_rank: int) -> Member:
    door = _door(facts, slot)
    ports, start = door.ports if door else (), membership.start_of(facts, slot)
    return dataclasses.replace(_member(slot, first_rank), ports=ports, start=start)


def _door(facts: Facts, slot: Slot) -> Rendezvous | None:
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


def _rendezvous(facts: Facts) -> Rendezvous | None:
    """Return where the attempt meets: at the first worker, without ports, as each member has its own. None: no offer.

    It may have finished before the others: its offer is for the attempt after this one.
    """
    door = _door(facts, facts.slots[0])
    return dataclasses.replace(door, ports=()) if door else None


def _is_at_hand(heartbeat: Heartbeat, attempt: int) -> bool:
    """Return whether the offer is good for `attempt`: an attempt that this heartbeat does not know may have taken it.

    Then the agent is told to wait, and reports with that what it offers now. Before the first attempt all offers are
    new.
    """
    return heartbeat.attempt == attempt or began(heartbeat, attempt - 1) or heartbeat.attempt == attempt - 1 == 0
