"""Apply `spec.suspend`: no replica lives while it is true; later the job goes on from what outlives its pods."""

import dataclasses

from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.failures import ledger
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import phases
from trainmaster.core.states.actions import DeleteReplica
from trainmaster.core.states.observed import Replica
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire import names


def suspend(facts: Facts) -> Verdict:
    """Enter the phase Suspended, and leave it again. As with a Kubernetes Job, the deadline then starts again.

    It is not left while an old replica lives: that one was made of the spec before, which may have changed.
    """
    suspended = facts.status.phase == Phase.SUSPENDED
    if facts.job.spec.suspend and not suspended:
        return Verdict(status=_suspended(facts))
    if suspended and not facts.job.spec.suspend and not any(replica.alive for replica in facts.observed.replicas):
        return Verdict(
            status=dataclasses.replace(
                facts.status, phase=Phase.PENDING, message="Resumed: spec.suspend is false again.", start_time=facts.now
            )
        )
    if suspended:
        left = [one for one in facts.observed.replicas if not one.deleting and not _is_kept(facts, one)]
        return Verdict(actions=tuple(DeleteReplica(one.name, one.uid) for one in left), final=True)
    return NOTHING


def _is_kept(facts: Facts, replica: Replica) -> bool:
    """Return whether a replica has ended and was replaced: it is kept for its log, and nobody needs its name again."""
    present = facts.status.incarnations.get(names.replica_key(replica.role, replica.index), 0)
    return not replica.alive and not replica.kept_by and 0 <= replica.incarnation < present


def _suspended(facts: Facts) -> TrainingJobStatus:
    """Return the suspended status. Ranks that may run end with their replicas, so the next start is a new attempt."""
    spec = facts.job.spec
    afterwards = (  # checkpoints inside the pods go with them
        "set to false, the job begins anew on a cluster: without spec.checkpoint.storage its checkpoints were inside "
        "the pods."
    )
    if spec.checkpoint.storage:
        afterwards = "set it to false to go on from the newest checkpoint."
    if spec.training.command and facts.checkpoint is None:
        afterwards = "set it to false to start the command again."
    may_run = facts.status.phase not in phases.GATHERING  # an agent may have begun without having reported it
    return dataclasses.replace(
        ledger.overtaken(facts.status, "suspended"),
        phase=Phase.SUSPENDED,
        message=f"Suspended by spec.suspend; {afterwards}",
        attempt=facts.status.attempt + (1 if may_run else 0),
        absent=(),
        substitutes={},
    )
