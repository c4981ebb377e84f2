"""Gather the facts that rules look at, once per decision."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.api.status import CheckpointStatus, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.situation import clocks, revision, unreachable
from trainmaster.core.situation.regime import Regime
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states import phases
from trainmaster.core.states.observed import Observed, Replica, ReplicaPhase
from trainmaster.wire import messages, names
from trainmaster.wire.agent_states import AgentState

Statement = tuple[str, bool, str, str]  # a condition, whether it holds, the reason in a word, and a sentence


@dataclass(frozen=True)
class Facts:
    """Hold everything a rule may look at."""

    job: TrainingJob
    observed: Observed
    now: datetime
    kind: Callable[["Facts"], Regime]  # the class of its regime: see `regime.choice`

    @cached_property
    def regime(self) -> Regime:
        """Return what the job's members have in common: whether they restart together, or each for itself."""
        return self.kind(self)

    @cached_property
    def status(self) -> TrainingJobStatus:
        """Return the job's status, its only memory. A new job's is derived, so that it need not be written first."""
        written = self.job.status
        if written.attempt or written.finished:
            return clocks.until(written, self.now)
        return dataclasses.replace(
            written, phase=Phase.PENDING, attempt=1, start_time=self.created, message="Accepted."
        )

    @cached_property
    def created(self) -> datetime:
        """Return when the job was created, by the API server's clock, but at most the present time."""
        return min(figures.rfc3339(self.job.metadata.creation_timestamp) or self.now, self.now)

    @cached_property
    def wanted(self) -> tuple[Slot, ...]:
        """Return the group that the spec asks for, in rank order: workers by place, then parameter servers."""
        workers = [self._slot(names.WORKER, index) for index in self.regime.seats()]
        servers = [self._slot(names.PARAMETER_SERVER, index) for index in range(self.job.spec.servers)]
        return (*workers, *servers)

    @cached_property
    def spares(self) -> tuple[Slot, ...]:
        """Return the workers beside the group that stand by, outside of the roster."""
        taken = set(self.regime.seats())
        free = (index for index in itertools.count() if index not in taken)
        beside = itertools.islice(free, self.job.spec.spares)
        return tuple(self._slot(names.WORKER, index, spare=True) for index in beside)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Return the group of the present attempt: `wanted` without absent slots, or all if no worker would be left."""
        absent = self.regime.does_without()
        present = tuple(slot for slot in self.wanted if slot.key not in absent)
        return present if any(slot.role == names.WORKER for slot in present) else self.wanted

    @cached_property
    def left_out(self) -> tuple[Slot, ...]:
        """Return those of `wanted` that the group of the present attempt does without."""
        return tuple(slot for slot in self.wanted if slot.key not in self.taking_part)

    @cached_property
    def taking_part(self) -> frozenset[str]:
        """Return the keys of `slots`."""
        return frozenset(slot.key for slot in self.slots)

    @cached_property
    def absent(self) -> frozenset[str]:
        """Return the keys in `status.absent`."""
        return frozenset(self.status.absent)

    @cached_property
    def written_done(self) -> frozenset[str]:
        """Return the keys in `status.done`."""
        return frozenset(self.status.done)

    @cached_property
    def revisions(self) -> dict[str, str]:
        """Return what replicas of each role are made of now."""
        return {role: revision.revision_of(self.job, role) for role in self.job.spec.roles}

    def replacing(self, slots: Iterable[Slot]) -> dict[str, int]:
        """Return `status.incarnations` as it is when each of these slots gets another replica."""
        return {**self.status.incarnations, **{slot.key: slot.incarnation + 1 for slot in slots}}

    @cached_property
    def missing(self) -> tuple[Slot, ...]:
        """Return the slots that the group waits for: whose agents are not up, or do not report to this operator."""
        return tuple(slot for slot in self.slots if not slot.ready)

    @cached_property
    def step(self) -> int:
        """Return the last step that all reporting ranks have ended; the written step while none reports."""
        speaking = self.at_attempt(AgentState.RUNNING) + self.at_attempt(AgentState.FINISHED)
        words = [slot.heartbeat.ranks for slot in speaking if slot.heartbeat and slot.role == names.WORKER]
        ranks = [rank for said in words for rank in said if rank.phase != "load"]
        if ranks:
            return figures.count(min(rank.step for rank in ranks))
        return self.status.progress.step if self.status.progress else 0

    @cached_property
    def resumed_step(self) -> int | None:
        """Return from which step the ranks of the present attempt went on; None before they report it."""
        told = [rank.resumed_step for rank in self.ranks if rank.resumed_step is not None]
        return figures.count(min(told)) if told else None

    @cached_property
    def overdue_seconds(self) -> float:
        """Return for how many seconds a step has been overdue on all ranks, as agents that are not silent report."""
        speaking = [slot.heartbeat for slot in self.slots if slot.replica and not slot.replica.silent]
        return unreachable.overdue_seconds([beat for beat in speaking if beat], self.status.attempt)

    @cached_property
    def ranks(self) -> tuple[messages.RankProgress, ...]:
        """Return all reported progress of ranks of the present attempt, dead ones included."""
        beats = (slot.heartbeat for slot in self.slots if slot.heartbeat)
        return tuple(rank for beat in beats if began(beat, self.status.attempt) for rank in beat.ranks)

    @cached_property
    def checkpoint(self) -> CheckpointStatus | None:
        """Return the newest complete checkpoint that was reported and is still there; None where there is none."""
        written, replicas = self.status.checkpoint, [slot.replica for slot in self.slots if slot.replica]
        if self.observed.private_checkpoints:  # each replica's own folder is lost with it; storage outlives them all
            replicas = [one for one in replicas if one.alive and one.phase == ReplicaPhase.RUNNING]
        records = [one.heartbeat.checkpoint for one in replicas if one.heartbeat]
        if written and self.observed.private_checkpoints and not self.status.finished:
            # The status does not say which replica has it. It is kept while one that has not reported yet may have it.
            all_told = len(records) == len(replicas)
            if all_told and not any(record and record.step >= written.step for record in records):
                written = None
        most = self.job.spec.training.steps or math.inf  # a checkpoint beyond the last step is none of this job
        told = [record for record in records if record and 0 <= record.step <= most]
        newest = max(told, key=lambda record: record.step, default=None)
        if newest is None or (written and written.step >= newest.step):
            return written
        return CheckpointStatus(
            step=figures.count(newest.step),
            time=figures.moment(newest.time),
            sha256=figures.legible(newest.sha256),
            seconds=figures.seconds(newest.seconds) if newest.seconds is not None else None,
        )

    @cached_property
    def incomplete_since(self) -> datetime:
        """Return since when the group has been incomplete, by the status. While suspended, it is not incomplete."""
        ready = next((c for c in self.status.conditions if c.type == phases.REPLICAS_READY), None)
        if not ready or ready.status != "False":
            return self.now
        return max(ready.last_transition_time, self.status.start_time or ready.last_transition_time)

    @cached_property
    def done(self) -> frozenset[str]:
        """Return the workers whose ranks have all ended well in this attempt, by the status or by heartbeats.

        The last heartbeat counts, even if the replica was lost since.
        """
        told = [(slot.key, slot.replica.heartbeat) for slot in self.slots if slot.role == names.WORKER and slot.replica]
        through = (AgentState.FINISHED, self.status.attempt)
        return self.written_done | {key for key, beat in told if beat and (beat.state, beat.attempt) == through}

    def at_attempt(self, state: AgentState) -> tuple[Slot, ...]:
        """Return the slots whose agent reports `state` of the present attempt."""
        return tuple(
            slot
            for slot in self.slots
            if slot.heartbeat and slot.heartbeat.state == state and slot.heartbeat.attempt == self.status.attempt
        )

    def _slot(self, role: str, index: int, spare: bool = False) -> Slot:
        key = names.replica_key(role, index)
        incarnation = self.status.incarnations.get(key, 0)
        is_in = not spare and (key not in self.absent or key in self.status.starts)
        replica = self._replicas.get((role, index, incarnation))
        return Slot(
            role=role,
            index=index,
            key=key,
            incarnation=incarnation,
            name=names.replica_name(self.job.name, role, index, incarnation),
            ranks=self.job.spec.ranks_each if role == names.WORKER else 1,
            devices=self.job.spec.roles[role].gpus,
            replica=replica,
            heartbeat=replica.reporting if replica else None,
            may_train=is_in and self.status.phase not in phases.GATHERING,
            stale=replica is not None and replica.revision not in ("", self.revisions[role]),
        )

    @cached_property
    def ended(self) -> dict[str, list[Replica]]:
        """Return the replicas of each slot that have ended and are not being deleted, oldest first."""
        found: dict[str, list[Replica]] = {}
        for replica in sorted(self.observed.replicas, key=lambda replica: replica.incarnation):
            if not replica.alive and not replica.deleting:
                found.setdefault(names.replica_key(replica.role, replica.index), []).append(replica)
        return found

    @cached_property
    def _replicas(self) -> dict[tuple[str, int, int], Replica]:
        replicas = unreachable.marked(self.job, self.observed, self.now, self.regime)
        return {(one.role, one.index, one.incarnation): one for one in replicas}


def began(heartbeat: messages.Heartbeat, attempt: int) -> bool:
    """Return whether this agent started ranks of `attempt`. One that waits names the attempt that it waits for."""
    return heartbeat.attempt == attempt and heartbeat.state != AgentState.WAITING
