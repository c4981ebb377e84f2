"""Find replicas that are lost though the platform has not said so: silent, with a second sign against them.

A node that loses its power or its network reports nothing, and Kubernetes gives its pods up after five minutes. So a
replica whose agent has been silent for some time is taken for one that the cluster took away (a disruption, which costs
nothing), as soon as Kubernetes says that its node does not answer, or a step has been overdue for as long on all ranks
that still report. An agent that still reports on a node that is marked, or is silent while the others train, is left
alone: only the operator's or the kubelet's connection is cut.
"""

import dataclasses
import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from trainmaster.api.job import TrainingJob
from trainmaster.core import figures
from trainmaster.core.situation.regime import Regime
from trainmaster.core.states.observed import SILENT_SECONDS, Observed, Replica, ReplicaPhase, silent_after
from trainmaster.wire import messages
from trainmaster.wire.agent_states import AgentState

NODE_SILENT, AGENT_CUT_OFF = "NodeSilent", "AgentCutOff"  # reasons, as of a DisruptionTarget condition
LOST_SECONDS = 20.0  # where `failurePolicy.nodeLostSeconds` is not set
_LOOK_SECONDS = 2.0  # as often as agents report


def marked(job: TrainingJob, observed: Observed, now: datetime, regime: Regime) -> tuple[Replica, ...]:
    """Return all replicas; those that are lost are marked as being deleted, with the reason."""
    limit = _limit_seconds(job)
    silences = {one.uid: _silence(observed, one, now) for one in observed.replicas}
    limits = {one.uid: max(limit, silent_after(one.hold_seconds)) for one in observed.replicas}
    silent = {uid: seconds for uid, seconds in silences.items() if seconds >= limits[uid]}
    heard = [one.reporting for one in observed.replicas if one.reporting and not one.silent and one.uid not in silent]
    # No agent is heard, not even from a node that answers: more likely no agent reaches this operator.
    is_deaf = not heard and any(one.uid in silent and not one.node_silent for one in observed.replicas)
    if not silent or is_deaf:
        return observed.replicas
    others_wait = regime.all_wait(heard, limit)
    found = []
    for one in observed.replicas:
        lost = one
        if one.uid in silent and (one.node_silent or others_wait):
            reason, sign = AGENT_CUT_OFF, "all others wait for a step to end"
            if one.node_silent:
                reason, sign = NODE_SILENT, "Kubernetes says that its node does not answer"
            message = f"nothing was heard of {one.name} for {silent[one.uid]:.0f} s, and {sign}"
            lost = dataclasses.replace(one, deleting=True, disruption=reason, disruption_message=message)
        found.append(lost)
    return tuple(found)


def _limit_seconds(job: TrainingJob) -> float:
    """Return for how many seconds a replica may be silent."""
    asked = job.spec.failure_policy.node_lost_seconds
    return LOST_SECONDS if asked is None else max(SILENT_SECONDS, asked)


def due(job: TrainingJob, observed: Observed, now: datetime) -> datetime | None:
    """Return when to check silent replicas again: when one may be lost, and for a while after; None: not at all."""
    limit = _limit_seconds(job)
    silences = [_silence(observed, one, now) for one in observed.replicas]
    doubtful = [seconds for seconds in silences if SILENT_SECONDS / 2 < seconds < limit + SILENT_SECONDS]
    left = [max(limit - seconds, _LOOK_SECONDS) for seconds in doubtful]
    return now + timedelta(seconds=min(left)) if left else None


def overdue_seconds(beats: Iterable[messages.Heartbeat], attempt: int) -> float:
    """Return how long a step has been overdue on all ranks of these agents; 0 where none of them trains."""
    training = [beat for beat in beats if beat.state == AgentState.RUNNING and beat.attempt == attempt]
    told = [rank.overdue_seconds for beat in training for rank in beat.ranks if rank.phase != "done"]
    return min((figures.seconds(seconds or 0.0) for seconds in told), default=0.0)


def _silence(observed: Observed, replica: Replica, now: datetime) -> float:
    """Return the seconds since its agent's last heartbeat that this operator could have heard; 0 where none is due.

    A new operator has heard no agent yet, and one that could not renew its lease, as while the API server was away, has
    turned all agents away.
    """
    if not replica.alive or replica.phase != ReplicaPhase.RUNNING:
        return 0.0
    heard = now.timestamp() - max(observed.began, replica.created) if observed.began else math.inf
    if replica.heartbeat is not None:
        return min(replica.silent_seconds, heard)
    return heard if observed.began else 0.0
