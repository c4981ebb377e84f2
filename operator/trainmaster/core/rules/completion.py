"""The job has succeeded when every worker's ranks ended with exit code 0 in the same attempt."""

from trainmaster.core import ending
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict
from trainmaster.wire import messages, names


def complete(facts: Facts) -> Verdict:
    """Succeeded, once and for all."""
    finished = [slot for slot in facts.at_attempt(messages.FINISHED) if slot.role == names.WORKER]
    if len(finished) < facts.job.spec.workers.replicas:
        return NOTHING
    message = f"All {len(finished)} workers finished." if len(finished) > 1 else "The worker finished."
    return Verdict(status=ending.succeeded(facts.status, message, facts.now))
