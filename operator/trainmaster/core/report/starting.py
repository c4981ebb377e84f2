"""Say what the start of an attempt waits for, for whoever watches it."""

from trainmaster.api.job_states import Phase
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.phases import GATHERING

_NAMED = 3


def waits_for(facts: Facts, phase: Phase) -> str:
    """Return what the attempt waits for, as half a sentence; empty where it trains, or where its job is over."""
    if phase in GATHERING:
        missing = [slot.key for slot in facts.missing]
        named = ", ".join(missing[:_NAMED]) + (" ..." if len(missing) > _NAMED else "")
        return f"no word yet from {named}" if missing else ""
    if phase != Phase.STARTING:
        return ""
    loading = [slot.key for slot in facts.slots if not slot.past_loading]
    if not loading:
        return "the first step"
    return f"{len(loading)} of {len(facts.slots)} replicas import modules and load model and data"
