"""Manage members that come and go: a lost or dead one starts again alone, a new one joins, the others train on.

This applies only where no process group spans replicas, and only in phase Running (see regime/independent.py). Each
change is written before any agent is told of it, with its line in the ledger where it is a failure.
"""

import dataclasses

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import classes, failures, judgement, member_failures
from trainmaster.core.regime import membership
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire.agent_states import AgentState


def look_after(facts: Facts) -> Verdict:
    """Make one change of the members, the most urgent first."""
    there = facts.regime.apart()
    if not there:
        return NOTHING
    # An absent replica of a slot that has not joined has only not come yet.
    lost = [slot for slot in there if (not slot.replica.alive if slot.replica else slot.key in facts.status.starts)]
    died = [slot for slot in membership.members(facts) if membership.is_at(facts, slot, AgentState.FAILED)]
    status = (
        _dismissed(facts) or _replaced(facts, lost, died) or _again(facts, died) or _joined(facts) or _begun_anew(facts)
    )
    return Verdict(status=status) if status else NOTHING


def _dismissed(facts: Facts) -> TrainingJobStatus | None:
    """Return the status without members that are not wanted any more, or None. One wanted later is a new replica."""
    wanted = {slot.key for slot in facts.slots}
    gone = [key for key in facts.status.starts if key not in wanted]
    if not gone:
        return None
    incarnations = facts.status.incarnations
    return dataclasses.replace(
        facts.status,
        starts={key: start for key, start in facts.status.starts.items() if key in wanted},
        incarnations={**incarnations, **{key: incarnations.get(key, 0) + 1 for key in gone}},
        message=f"{', '.join(gone)} is not wanted any more; the others train on.",
    )


def _replaced(facts: Facts, lost: list[Slot], died: list[Slot]) -> TrainingJobStatus | None:
    if not lost:
        return None
    gone = {slot.key for slot in lost}
    replaced = dataclasses.replace(
        facts.status,
        incarnations=facts.replacing(lost),
        starts={key: start for key, start in facts.status.starts.items() if key not in gone},
    )
    failure = failures.of_lost(lost, facts.step)
    joined = any(slot.key in facts.status.starts for slot in lost)
    if failure.failure_class in classes.FREE and not joined:
        return dataclasses.replace(replaced, message=f"{figures.sentence(failure.evidence)} Replacing it.")
    left = {slot.key for slot in lost}
    mixed = any(slot.stale and slot.key not in left for slot in membership.members(facts))  # successors have this spec
    if not mixed and membership.can_go_on(facts, without={slot.key for slot in (*lost, *died)}):
        return member_failures.after_member_failure(facts, failure, [slot.key for slot in lost], replaced)
    return judgement.after_failure(facts, failure, replaced)


def _again(facts: Facts, died: list[Slot]) -> TrainingJobStatus | None:
    if not died:
        return None
    told = {slot.key: failures.of_agent(slot, facts.status.attempt) for slot in died}
    # The others may have the fault too: they have taken in what this member has sent.
    older = next((failure for failure in told.values() if classes.class_of(failure.failure_class).older), None)
    failure = older or told[died[0].key]
    # What was corrected since may be what it died of, and it is taken by all together (rules/revised.py).
    edited = any(slot.stale for slot in membership.members(facts))
    if older or edited or not membership.can_go_on(facts, without=told):
        return judgement.after_failure(facts, failure)
    alike = [slot for slot in died if told[slot.key].failure_class == failure.failure_class]
    again = {slot.key: membership.start_of(facts, slot) + 1 for slot in alike}
    started = dataclasses.replace(facts.status, starts={**facts.status.starts, **again})
    return member_failures.after_member_failure(facts, failure, [*again], started)


def _joined(facts: Facts) -> TrainingJobStatus | None:
    """Return the status with the new members; those of another spec than the others' wait (rules/revised.py)."""
    new = [slot.key for slot in facts.slots if slot.ready and not slot.stale and slot.key not in facts.status.starts]
    if not new or membership.would_mix(facts):
        return None
    return dataclasses.replace(
        facts.status,
        starts={**facts.status.starts, **dict.fromkeys(new, 0)},
        message=f"{', '.join(new)} joined attempt {facts.status.attempt}.",
    )


def _begun_anew(facts: Facts) -> TrainingJobStatus | None:
    """Return the next attempt where no agent has begun this one any more, so that nobody can let the others in.

    An operator that has just started counts a member that it has not heard yet as training, so it may replace one too
    many alone. Then each member waits for a rendezvous that no other has.
    """
    there = membership.members(facts)
    heard = there and all(slot.replica and slot.replica.alive and slot.heartbeat for slot in there)
    if not heard or membership.meeting(facts) or membership.held(facts):
        return None
    return member_failures.of_all(facts, "No member trains any more, so all begin anew.")
