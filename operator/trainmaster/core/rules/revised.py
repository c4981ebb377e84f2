"""Recreate pods when the spec changed in what they are made of: those that train nothing at once, at no cost.

A group that trains takes the new spec as a whole, at its next attempt: then none of its pods trains, and all that are
of an older spec are recreated before any agent is told to run. No attempt ever has pods of two specs (decision 0137).
"""

import dataclasses

from trainmaster.api.job_states import Phase
from trainmaster.core import figures
from trainmaster.core.failures import ledger
from trainmaster.core.regime import membership
from trainmaster.core.situation import edits
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states import phases
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire.agent_states import AgentState

# Agents report at once that their ranks have ended; one that is lost meanwhile is noticed after this time.
LOOK_SECONDS = 5


def take_spec(facts: Facts) -> Verdict:
    """Write new incarnations for pods of an older spec that train nothing; else look again when their ranks have ended.

    Ranks of the last attempt may still save, and their agents still report why it ended.
    """
    old = [slot for slot in _idle(facts) if slot.stale]
    # Their agents still end ranks of an older attempt, as far as they are heard.
    heard = [slot.heartbeat for slot in old if slot.replica and not slot.replica.silent]
    if any(beat and beat.state == AgentState.RUNNING for beat in heard):
        return Verdict(wake_at=figures.later(facts.now, LOOK_SECONDS))
    if old:
        they = f"{edits.listed([slot.key for slot in old])} {'is' if len(old) == 1 else 'are'}"
        before = "" if facts.status.phase == Phase.PENDING else facts.status.message or ""  # why it gathers again
        message = f"{before} {edits.named(facts, old)} changed: {they} made anew.".strip()
        anew = dataclasses.replace(facts.status, incarnations=facts.replacing(old), message=message)
        return Verdict(status=anew)
    if not membership.would_mix(facts):
        return NOTHING
    older = [slot for slot in membership.members(facts) if slot.stale]  # a new member must not train beside these
    return Verdict(
        status=dataclasses.replace(
            facts.status,
            attempt=facts.status.attempt + 1,
            phase=Phase.RESIZING,
            message=f"Members join after {edits.named(facts, older)} changed: all begin anew with the present spec.",
        )
    )


def _idle(facts: Facts) -> list[Slot]:
    """Return the slots of which no rank of the present attempt may run."""
    waiting = (slot for slot in facts.regime.apart() if slot.key not in facts.status.starts)
    beside = [*facts.spares, *facts.left_out, *waiting]
    if facts.status.phase not in phases.GATHERING or ledger.undecided(facts.status):
        return beside
    return [*facts.regime.group(), *beside]
