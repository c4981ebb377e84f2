"""A replica is lost (deleted, evicted, its agent ended, its node gone): a new incarnation takes its place.

It is not waited for: a pod that is stuck in Terminating has an older number in its name than its successor. The
others keep their pods and wait, warm, for the next attempt.
"""

from trainmaster.core import failures, phases
from trainmaster.core.facts import Facts, Slot
from trainmaster.core.failures import Failure
from trainmaster.core.rules.restarts import after_failure
from trainmaster.core.verdict import NOTHING, Verdict


def replace_lost(facts: Facts) -> Verdict:
    """Write the new incarnations, and the new attempt where one had begun."""
    lost = [slot for slot in facts.slots if _lost(facts, slot)]
    if not lost:
        return NOTHING
    incarnations = {**facts.status.incarnations, **{slot.key: slot.incarnation + 1 for slot in lost}}
    failure = _failure(facts, lost)
    harmless = failure.failure_class in failures.FREE and not _began(facts)
    if harmless:
        update = {
            "incarnations": incarnations,
            "phase": phases.PENDING,
            "message": f"{failure.evidence}. Replacing it.",
        }
        return Verdict(status=facts.status.model_copy(update=update))
    return Verdict(status=after_failure(facts, failure, incarnations=incarnations))


def _lost(facts: Facts, slot: Slot) -> bool:
    """Absent counts only while running: before that it may not have been created yet."""
    if slot.replica is None:
        return facts.status.phase == phases.RUNNING
    return not slot.replica.alive


def _began(facts: Facts) -> bool:
    return facts.attempt_began or facts.status.phase == phases.RUNNING


def _failure(facts: Facts, lost: list[Slot]) -> Failure:
    """One failure for all that were lost at once, told by the first that the job itself caused, if any."""
    step = facts.status.progress.step if facts.status.progress else 0
    found = [
        failures.of_replica(slot.replica, step) if slot.replica else failures.vanished(slot, step) for slot in lost
    ]
    found.sort(key=lambda failure: failure.failure_class in failures.FREE)
    return found[0]
