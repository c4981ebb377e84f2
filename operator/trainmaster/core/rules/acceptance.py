"""A new job is written down before anything is made for it, or refused where it asks for what is not there yet."""

from trainmaster.core import ending, phases
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict


def accept(facts: Facts) -> Verdict:
    """Pending, attempt 1, from now on."""
    if facts.status.attempt:
        return NOTHING
    refusal = _unsupported_strategy(facts)
    begun = facts.status.model_copy(
        update={"phase": phases.PENDING, "attempt": 1, "start_time": facts.now, "message": "Accepted."}
    )
    if refusal:
        return Verdict(status=ending.failed(begun, "NotYetSupported", refusal, facts.now))
    return Verdict(status=begun)


def _unsupported_strategy(facts: Facts) -> str:
    """Other fields that are not supported yet are named in a condition; a strategy cannot be left out."""
    refused = [(field, why) for field, why in facts.job.spec.not_yet_supported() if field.startswith("spec.strategy")]
    return " ".join(f"{field}: {why}" for field, why in refused)
