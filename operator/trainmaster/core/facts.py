"""The facts that rules look at, gathered once per decision.

A slot is a place in the group that the spec asks for; at most one living replica fills it, that of the
incarnation in `.status`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import CheckpointStatus, TrainingJobStatus
from trainmaster.core import clocks, figures, phases, places, revision, unreachable
from trainmaster.core.observed import RUNNING, Observed, Replica
from trainmaster.wire import messages, names

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Slot:
    """One member of the group to be, and the replica that fills it now (if any, of the right incarnation).

    `Facts` makes each slot once, so two slots are equal only where they are the same object. To compare all members
    would cost as much as the group is large, for each search among the slots; a search goes by `key`.
    """

    role: str
    index: int
    incarnation: int
    ranks: int
    replica: Replica | None
    may_train: bool = False  # as far as the status knows: then silence means nothing, training goes on without us
    stale: bool = False  # its replica was made of an older spec; a new attempt is not begun with it

    @cached_property
    def key(self) -> str:
        """Its name over all incarnations."""
        return names.replica_key(self.role, self.index)

    @property
    def heartbeat(self) -> messages.Heartbeat | None:
        """What its agent said last, if it is up."""
        return self.replica.reporting if self.replica else None

    @property
    def ready(self) -> bool:
        """Whether its agent takes orders, and its peers can reach it."""
        beat, replica = self.heartbeat, self.replica
        if beat is None or replica is None or beat.state == messages.LEAVING or not replica.address:
            return False
        return self.may_train or not (replica.silent or self.stale)

    @property
    def past_loading(self) -> bool:
        """Whether all its ranks have said that they train: an agent says that it runs before its ranks say anything."""
        ranks = self.heartbeat.ranks if self.heartbeat else ()
        return len(ranks) >= self.ranks and all(rank.phase != "load" for rank in ranks)


@dataclass(frozen=True)
class Facts:
    """Everything a rule may look at."""

    job: TrainingJob
    observed: Observed
    now: datetime
    computed: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # see `once`

    @cached_property
    def status(self) -> TrainingJobStatus:
        """The only memory. That of a new job is the same for all, so it need not be written to be known."""
        written = self.job.status
        if written.attempt or written.finished:
            return clocks.until(written, self.now)
        begun = {"phase": phases.PENDING, "attempt": 1, "start_time": self.created, "message": "Accepted."}
        return written.model_copy(update=begun)

    @cached_property
    def created(self) -> datetime:
        """By the clock of who stores jobs, but never in our future."""
        return min(figures.rfc3339(self.job.metadata.creation_timestamp) or self.now, self.now)

    @cached_property
    def wanted(self) -> tuple[Slot, ...]:
        """The group that the spec asks for, in rank order: workers by place, then parameter servers."""
        workers = [self._slot(names.WORKER, index) for index in self.seats]
        servers = [self._slot(names.PARAMETER_SERVER, index) for index in range(self.job.spec.servers)]
        return (*workers, *servers)

    @cached_property
    def seats(self) -> tuple[int, ...]:
        """The index of the worker at each place of the group."""
        substitutes = {} if self.job.spec.independent else self.status.substitutes
        return places.seated(self.job.spec.workers.replicas, substitutes)

    @cached_property
    def spares(self) -> tuple[Slot, ...]:
        """The workers beside the group that stand by, outside of the roster."""
        beside = places.standing_by(self.seats, self.job.spec.spares)
        return tuple(self._slot(names.WORKER, index, spare=True) for index in beside)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The group of the present attempt: those of `wanted` that it does not do without. Somebody has to train."""
        alone = self.job.spec.independent and self.status.phase == phases.RUNNING  # whoever comes takes part
        absent = self.absent if self.job.spec.elasticity and not alone else frozenset()
        present = tuple(slot for slot in self.wanted if slot.key not in absent)
        return present if any(slot.role == names.WORKER for slot in present) else self.wanted

    @cached_property
    def left_out(self) -> tuple[Slot, ...]:
        """Those of `wanted` that the group of the present attempt does without."""
        return tuple(slot for slot in self.wanted if slot.key not in self.taking_part)

    @cached_property
    def taking_part(self) -> frozenset[str]:
        """The keys of `slots`."""
        return frozenset(slot.key for slot in self.slots)

    @cached_property
    def absent(self) -> frozenset[str]:
        """The keys in `status.absent`."""
        return frozenset(self.status.absent)

    @cached_property
    def written_done(self) -> frozenset[str]:
        """The keys in `status.done`."""
        return frozenset(self.status.done)

    @cached_property
    def revisions(self) -> dict[str, str]:
        """What replicas of each role are made of now."""
        return {role: revision.of(self.job, role) for role in self.job.spec.roles}

    def replacing(self, slots: Iterable[Slot]) -> dict[str, int]:
        """`status.incarnations` when each of these gets another replica."""
        return {**self.status.incarnations, **{slot.key: slot.incarnation + 1 for slot in slots}}

    @cached_property
    def complete(self) -> bool:
        """Whether every slot's agent is up and talks to us."""
        return not self.missing

    @cached_property
    def missing(self) -> tuple[Slot, ...]:
        """The slots that the group still waits for."""
        return tuple(slot for slot in self.slots if not slot.ready)

    @cached_property
    def step(self) -> int:
        """The last step that all ranks that speak have ended; as it was written, while none does."""
        speaking = self.at_attempt(messages.RUNNING) + self.at_attempt(messages.FINISHED)
        words = [slot.heartbeat.ranks for slot in speaking if slot.heartbeat and slot.role == names.WORKER]
        ranks = [rank for said in words for rank in said if rank.phase != "load"]
        if ranks:
            return figures.count(min(rank.step for rank in ranks))
        return self.status.progress.step if self.status.progress else 0

    @cached_property
    def resumed_step(self) -> int | None:
        """From which step the ranks of the present attempt went on; None before they say so."""
        told = [rank.resumed_step for rank in self.ranks if rank.resumed_step is not None]
        return figures.count(min(told)) if told else None

    @cached_property
    def save_seconds(self) -> float:
        """How long the ranks of the present attempt have stood still to save; the slowest counts."""
        return max((figures.seconds(rank.save_seconds or 0.0) for rank in self.ranks), default=0.0)

    @cached_property
    def overdue_seconds(self) -> float:
        """How long a step has been overdue on all ranks, in the words of those whose agents still speak."""
        speaking = [slot.heartbeat for slot in self.slots if slot.replica and not slot.replica.silent]
        return unreachable.overdue_seconds([beat for beat in speaking if beat], self.status.attempt)

    @cached_property
    def ranks(self) -> tuple[messages.RankProgress, ...]:
        """All that is told of ranks of the present attempt, dead ones included."""
        beats = (beat for beat in self.heartbeats() if began(beat, self.status.attempt))
        return tuple(rank for beat in beats for rank in beat.ranks)

    @cached_property
    def checkpoint(self) -> CheckpointStatus | None:
        """The newest complete checkpoint that anybody told of, and that is still there."""
        written = self.status.checkpoint if self._is_still_there else None
        told = [beat.checkpoint for beat in self.heartbeats() if beat.checkpoint and self._may_be(beat.checkpoint)]
        newest = max(told, key=lambda record: record.step, default=None)
        if newest is None or (written and written.step >= newest.step):
            return written
        return CheckpointStatus(
            step=figures.count(newest.step),
            time=figures.moment(newest.time),
            sha256=figures.legible(newest.sha256),
            seconds=figures.seconds(newest.seconds) if newest.seconds is not None else None,
        )

    @property
    def _is_still_there(self) -> bool:
        """Whether the checkpoint that was written down may still be there: on storage, or in the folder of who has it.

        Who has it is not written. So it is kept while a replica runs that has not told this operator what it has.
        """
        written = self.status.checkpoint
        if written is None or not self.observed.private_checkpoints or self.status.finished:
            return True
        running = [slot for slot in self.slots if slot.replica and slot.replica.alive and slot.replica.phase == RUNNING]
        records = [slot.heartbeat.checkpoint if slot.heartbeat else None for slot in running]
        unheard = any(slot.heartbeat is None for slot in running)
        return unheard or any(record and record.step >= written.step for record in records)

    def _may_be(self, record: messages.CheckpointRecord) -> bool:
        """A checkpoint beyond the last step is no checkpoint of this job."""
        return 0 <= record.step <= (self.job.spec.training.steps or record.step)

    @cached_property
    def incomplete_since(self) -> datetime:
        """Since when somebody has been missing, as far as it was written down. While suspended, nobody is."""
        ready = next((c for c in self.status.conditions if c.type == phases.REPLICAS_READY), None)
        if not ready or ready.status != "False":
            return self.now
        return max(ready.last_transition_time, self.status.start_time or ready.last_transition_time)

    @cached_property
    def done(self) -> frozenset[str]:
        """The workers whose ranks have all ended well in this attempt, as it was written or as their agents said last.

        Whatever became of the replica since: its last words stand.
        """
        told = (slot for slot in self.slots if slot.role == names.WORKER and slot.replica)
        ended = {slot.key for slot in told if slot.replica and self._is_through(slot.replica.heartbeat)}
        return self.written_done | ended

    def _is_through(self, beat: messages.Heartbeat | None) -> bool:
        return beat is not None and (beat.state, beat.attempt) == (messages.FINISHED, self.status.attempt)

    def heartbeats(self) -> tuple[messages.Heartbeat, ...]:
        """Those of all slots that talk to us."""
        return tuple(slot.heartbeat for slot in self.slots if slot.heartbeat is not None)

    def at_attempt(self, state: str) -> tuple[Slot, ...]:
        """The slots whose agent reports `state` of the present attempt."""
        return tuple(
            slot
            for slot in self.slots
            if slot.heartbeat and slot.heartbeat.state == state and slot.heartbeat.attempt == self.status.attempt
        )

    def _slot(self, role: str, index: int, spare: bool = False) -> Slot:
        key = names.replica_key(role, index)
        incarnation = self.status.incarnations.get(key, 0)
        is_in = not spare and (key not in self.absent or key in self.status.starts)
        may_train = is_in and self.status.phase not in phases.GATHERING
        ranks = self.job.spec.workers.ranks if role == names.WORKER else 1
        replica = self._replicas.get((role, index, incarnation))
        stale = replica is not None and replica.revision not in ("", self.revisions[role])
        return Slot(role, index, incarnation, ranks, replica, may_train, stale)

    @cached_property
    def ended(self) -> dict[str, list[Replica]]:
        """The replicas of each slot that have ended and nobody deleted, oldest first."""
        found: dict[str, list[Replica]] = {}
        for replica in sorted(self.observed.replicas, key=lambda replica: replica.incarnation):
            if not replica.alive and not replica.deleting:
                found.setdefault(names.replica_key(replica.role, replica.index), []).append(replica)
        return found

    @cached_property
    def _replicas(self) -> dict[tuple[str, int, int], Replica]:
        return {(r.role, r.index, r.incarnation): r for r in unreachable.marked(self.job, self.observed, self.now)}


def once(function: Callable[[Facts], T]) -> Callable[[Facts], T]:
    """Return `function`, computed at most once for each `Facts`: several rules ask for the same roster."""

    @wraps(function)
    def kept(facts: Facts) -> T:
        if function not in facts.computed:
            facts.computed[function] = function(facts)
        return cast("T", facts.computed[function])

    return kept


def began(heartbeat: messages.Heartbeat, attempt: int) -> bool:
    """Whether this agent started ranks of `attempt`. One that waits names the attempt that it waits for."""
    return heartbeat.attempt == attempt and heartbeat.state != messages.WAITING
