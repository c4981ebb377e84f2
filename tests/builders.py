"""Jobs, replicas and heartbeats for tests, said in words: `a_job().with_workers(4).at(RUNNING, attempt=2).build()`.

Builders are frozen: every word gives a new one. Used by all tests of the control side.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states.observed import Ending, Obstacle, Replica, ReplicaPhase
from trainmaster.wire import messages, names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import ErrorReport, ExitReport, Heartbeat, RankProgress, Rendezvous, Roster

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
TASK = {"task": "tests:Nothing", "steps": 1000, "globalBatchSize": 64}


@dataclass(frozen=True)
class JobBuilder:
    """A TrainingJob to be."""

    spec: Mapping[str, Any] = field(default_factory=lambda: {"strategy": {"type": "AllReduce"}, "training": TASK})
    status: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(
        default_factory=lambda: {"name": "digits", "namespace": "lab", "uid": "job-1", "generation": 1}
    )

    def where(self, **spec: Any) -> JobBuilder:
        """With these members of the spec (camelCase)."""
        return dataclasses.replace(self, spec={**self.spec, **spec})

    def with_workers(self, replicas: int, **more: Any) -> JobBuilder:
        """With so many workers."""
        return self.where(workers={**self.spec.get("workers", {}), "replicas": replicas, **more})

    def with_failure_policy(self, **policy: Any) -> JobBuilder:
        """With this failurePolicy."""
        return self.where(failurePolicy={**self.spec.get("failurePolicy", {}), **policy})

    def at(self, phase: str, attempt: int = 1, **status: Any) -> JobBuilder:
        """With this status (camelCase), as it would be read from an API server."""
        stamp = {"startTime": NOON.isoformat(), "phase": phase, "attempt": attempt}
        return dataclasses.replace(self, status={**stamp, **self.status, **status})

    def named(self, name: str) -> JobBuilder:
        """With another name, and another uid."""
        return dataclasses.replace(self, metadata={**self.metadata, "name": name, "uid": f"uid-of-{name}"})

    def with_metadata(self, **metadata: Any) -> JobBuilder:
        """With these members of the metadata (camelCase)."""
        return dataclasses.replace(self, metadata={**self.metadata, **metadata})

    def build(self) -> TrainingJob:
        """The job."""
        return TrainingJob.parse({"metadata": self.metadata, "spec": self.spec, "status": self.status})


def a_job() -> JobBuilder:
    """One worker, AllReduce, a task of 1000 steps, a checkpoint every 50."""
    return JobBuilder()


def written(status: TrainingJobStatus) -> TrainingJobStatus:
    """The status as it comes back after it was stored as JSON."""
    return TrainingJobStatus.read(json.loads(json.dumps(status.to_dict())))


def a_replica(index: int = 0, incarnation: int = 0, role: str = names.WORKER, job: str = "digits") -> Replica:
    """A replica that runs, whose agent has said nothing yet."""
    name = names.replica_name(job, role, index, incarnation)
    return Replica(
        role=role,
        index=index,
        incarnation=incarnation,
        name=name,
        uid=f"uid-{name}",
        phase=ReplicaPhase.RUNNING,
        created=NOON.timestamp(),
        address=f"10.0.{incarnation}.{index + 1}",
        node=f"node-{index}",
    )


def a_slot(replica: Replica, devices: int = 1) -> Slot:
    """The slot of one rank that this replica fills."""
    key = names.replica_key(replica.role, replica.index)
    beat = replica.reporting
    return Slot(replica.role, replica.index, key, replica.incarnation, replica.name, 1, devices, replica, beat)


def pending(replica: Replica, reason: str = "", message: str = "", since: float | None = None) -> Replica:
    """Not started yet; with a reason: because of an obstacle."""
    obstacle = Obstacle(reason, message or f"because of {reason}", since) if reason else None
    return dataclasses.replace(replica, phase=ReplicaPhase.PENDING, obstacle=obstacle)


def ended(replica: Replica, code: int | None = 1, reason: str = "Error", message: str = "") -> Replica:
    """Its agent is no more."""
    phase = ReplicaPhase.FAILED if code else ReplicaPhase.SUCCEEDED
    return dataclasses.replace(replica, phase=phase, ending=Ending(code, reason, message))


def deleting(replica: Replica) -> Replica:
    """Somebody deleted it; it is still there."""
    return dataclasses.replace(replica, deleting=True)


def evicted(replica: Replica, reason: str = "EvictionByEvictionAPI") -> Replica:
    """Disrupted: deleted by the cluster for its own reasons."""
    return dataclasses.replace(replica, deleting=True, disruption=reason)


def saying(replica: Replica, heartbeat: Heartbeat) -> Replica:
    """The replica, after its agent said this."""
    own = dataclasses.replace(
        heartbeat,
        role=replica.role,
        index=replica.index,
        incarnation=replica.incarnation,
        pod_uid=replica.uid,
    )
    return dataclasses.replace(replica, heartbeat=own)


def a_heartbeat(port: int = 40000) -> Heartbeat:
    """Waiting for orders. The replica's identity is filled in by `saying`."""
    return Heartbeat(
        job="lab/digits",
        job_uid="job-1",
        role=names.WORKER,
        index=0,
        incarnation=0,
        pod_uid="",
        sequence=1,
        state=AgentState.WAITING,
        attempt=0,
        offer=Rendezvous(port, f"key-{port}"),
    )


def running(beat: Heartbeat, roster: Roster, step: int = 0, phase: str = "train", rank: int = 0) -> Heartbeat:
    """Its ranks train this roster's attempt."""
    own = next((one for one in roster.members if (one.role, one.index) == (beat.role, beat.index)), None)
    return dataclasses.replace(
        beat,
        state=AgentState.RUNNING,
        attempt=roster.attempt,
        roster_digest=roster.digest,
        rendezvous=dataclasses.replace(roster.rendezvous, ports=own.ports if own else ()),
        offer=Rendezvous(beat.offer.port + 1, f"key-{beat.offer.port + 1}"),
        ranks=(RankProgress(rank, step, phase, loss=1.0, step_seconds=0.5),),
    )


def finished(beat: Heartbeat) -> Heartbeat:
    """Its ranks came to their good end."""
    rank = beat.ranks[0].rank if beat.ranks else 0
    return dataclasses.replace(beat, state=AgentState.FINISHED, good_end=messages.GoodEnd(beat.attempt, rank))


def failed(beat: Heartbeat, report: ExitReport) -> Heartbeat:
    """One of its ranks died."""
    return dataclasses.replace(beat, state=AgentState.FAILED, attempt=report.attempt, exit=report)


def a_death(attempt: int = 1, step: int = 10, **more: Any) -> ExitReport:
    """A rank was killed."""
    return ExitReport(**{"attempt": attempt, "rank": 0, "step": step, "signal": "SIGKILL", **more})


def an_error(message: str = "bad batch 7", attempt: int = 1, step: int = 10, kind: str = "ValueError") -> ExitReport:
    """A rank raised an exception."""
    error = ErrorReport(kind, message, "train.py:12 in step")
    return ExitReport(attempt=attempt, rank=0, step=step, exit_code=1, error=error)
