"""The job has succeeded when every worker's ranks ended with exit code 0 in the same attempt.

A worker that is through need not be there any more when the last one is: `status.done` remembers it.
"""

from trainmaster.core import ending, membership
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict
from trainmaster.wire import messages, names


def complete(facts: Facts) -> Verdict:
    """Succeeded, once and for all."""
    there = {slot.key for slot in facts.at_attempt(messages.FINISHED)}.union(facts.status.done)
    finished = [slot for slot in facts.slots if slot.role == names.WORKER and slot.key in there]
    if not finished or len(finished) < _needed(facts):
        return NOTHING
    message = f"All {len(finished)} workers finished." if len(finished) > 1 else "The worker finished."
    return Verdict(status=ending.succeeded(facts.status, message, facts.now))


def _needed(facts: Facts) -> int:
    """All workers of the group; where they come and go within bounds, those that take part now."""
    workers = [slot for slot in facts.slots if slot.role == names.WORKER]
    bounds = facts.job.spec.elasticity
    if bounds is None or not membership.alone(facts):
        return len(workers)
    return max(bounds.min_replicas, sum(slot.key in facts.status.starts for slot in workers))
