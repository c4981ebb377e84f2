"""Refuse a new job where it asks for what is not supported yet; else let it begin.

Nothing needs to be written for that: attempt 1 and incarnation 0 are what an empty status means (`Facts.status`), so an
operator that dies now begins in the same way again.
"""

from trainmaster.core import ending
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict

# A job that asks for a queue must not jump it; other fields that are not supported yet are named in a condition.
_NEVER_LEFT_OUT = ("spec.scheduling.gang",)


def accept(facts: Facts) -> Verdict:
    """Fail a new job that asks for what is not supported yet; else change nothing."""
    refusal = "" if facts.job.status.attempt else _refusal(facts)
    return Verdict(status=ending.failed(facts.status, "NotYetSupported", refusal, facts.now)) if refusal else NOTHING


def _refusal(facts: Facts) -> str:
    refused = [(field, why) for field, why in facts.job.spec.not_yet_supported() if field.startswith(_NEVER_LEFT_OUT)]
    return " ".join(f"{field}: {why}" for field, why in refused)
