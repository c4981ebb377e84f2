"""A new job is refused where it asks for what is not there yet; else it begins.

Nothing needs to be written for that: attempt 1 and incarnation 0 are what an empty status means (`Facts.status`), so an
operator that dies now begins in the same way again.
"""

from trainmaster.core import ending
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict


def accept(facts: Facts) -> Verdict:
    """Pending, attempt 1; or Failed."""
    refusal = "" if facts.job.status.attempt else _unsupported_strategy(facts)
    return Verdict(status=ending.failed(facts.status, "NotYetSupported", refusal, facts.now)) if refusal else NOTHING


def _unsupported_strategy(facts: Facts) -> str:
    """Other fields that are not supported yet are named in a condition; a strategy cannot be left out."""
    refused = [(field, why) for field, why in facts.job.spec.not_yet_supported() if field.startswith("spec.strategy")]
    return " ".join(f"{field}: {why}" for field, why in refused)
