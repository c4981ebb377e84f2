"""`spec.workers.replicas` was changed: the group of the new size is a new attempt. It costs no restart.

The size that the present attempt was started with stands in `status.replicas.desired`, which is written together
with the attempt.
"""

from trainmaster.core import phases
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict


def resize(facts: Facts) -> Verdict:
    """From any phase in which agents may run ranks of the old size. A group that still gathers simply changes."""
    before, now = facts.status.replicas, facts.job.spec.workers.replicas
    if before is None or before.desired == now or facts.status.phase in phases.GATHERING:
        return NOTHING
    update = {
        "attempt": facts.status.attempt + 1,
        "phase": phases.RESIZING,
        "message": f"Resizing from {before.desired} to {now} workers.",
    }
    return Verdict(status=facts.status.model_copy(update=update))
