"""`spec.suspend`: no replica exists while it is true; what was trained is kept, and the job goes on afterwards."""

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import ledger, phases
from trainmaster.core.actions import DeleteReplica
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict


def suspend(facts: Facts) -> Verdict:
    """Into Suspended, and out of it again. As with a Kubernetes Job, the deadline then begins anew."""
    suspended = facts.status.phase == phases.SUSPENDED
    if facts.job.spec.suspend and not suspended:
        return Verdict(status=_suspended(facts))
    if suspended and not facts.job.spec.suspend:
        update = {"phase": phases.PENDING, "message": "Resumed: spec.suspend is false again.", "start_time": facts.now}
        return Verdict(status=facts.status.model_copy(update=update))
    if suspended:
        alive = (DeleteReplica(r.name, r.uid) for r in facts.observed.replicas if not r.deleting)
        return Verdict(actions=tuple(alive), final=True)
    return NOTHING


def _suspended(facts: Facts) -> TrainingJobStatus:
    """The ranks of this attempt end with their replicas, so the next start is an attempt of its own."""
    may_run = facts.status.phase not in phases.GATHERING  # an agent may have begun, unheard
    update = {
        "phase": phases.SUSPENDED,
        "message": "Suspended by spec.suspend; set it to false to go on from the newest checkpoint.",
        "attempt": facts.status.attempt + (1 if may_run else 0),
        "absent": (),
        "substitutes": {},
        **ledger.overtaken(facts.status, "suspended"),
    }
    return facts.status.model_copy(update=update)
