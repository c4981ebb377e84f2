"""Begin a new attempt when `spec.workers.replicas` was changed: the group has the new size. It costs no restart.

The size that the present attempt was started with stands in `status.replicas.desired`, which is written together with
the attempt.
"""

import dataclasses

from trainmaster.api.job_states import Phase
from trainmaster.core.failures import ledger
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import phases
from trainmaster.core.states.verdict import NOTHING, Verdict


def resize(facts: Facts) -> Verdict:
    """Resize in any phase in which agents may run ranks of the old size. A group that still gathers simply changes."""
    before, now = facts.status.replicas, facts.job.spec.workers.replicas
    if before is None:
        return NOTHING
    if facts.status.phase in phases.GATHERING:
        # An unexplained failure costs no budget then: its cause may be a replica that leaves.
        absent = facts.regime.missed_after_resize()
        status = dataclasses.replace(ledger.overtaken(facts.status, "resized"), absent=absent)
        return Verdict(status=status) if before.desired != now and status != facts.status else NOTHING
    message = facts.regime.resized()
    if not message:
        return NOTHING
    return Verdict(
        status=dataclasses.replace(
            ledger.overtaken(facts.status, "resized"),
            attempt=facts.status.attempt + 1,
            phase=Phase.RESIZING,
            message=message,
            absent=facts.regime.missed_after_resize(),
        )
    )
