"""A survivor's error was the first to arrive, and the restart is under way; now the cause is known.

The ledger is put right, and what was decided is judged again: a cause that would only repeat itself ends the job,
and one that is nobody's fault gives the budget back.
"""

from trainmaster.core import failures, ledger
from trainmaster.core.facts import Facts
from trainmaster.core.failures import Failure
from trainmaster.core.verdict import NOTHING, Verdict


def name_the_cause(facts: Facts) -> Verdict:
    """Replace the newest line of the ledger where it names but an echo of another rank's death."""
    symptom = ledger.unexplained(facts.status)
    if symptom is None:
        return NOTHING
    cause = _cause(facts, symptom.attempt)
    return Verdict(status=ledger.judged(facts, cause)) if cause else NOTHING


def _cause(facts: Facts, attempt: int) -> Failure | None:
    """The first death of that attempt that is not an echo. Agents keep their last report."""
    for slot in facts.slots:
        report = slot.heartbeat.exit if slot.heartbeat else None
        if report and report.attempt == attempt:
            failure = failures.of_rank(slot, report)
            if failure.failure_class != failures.PEER_LOST:
                return failure
    return None
