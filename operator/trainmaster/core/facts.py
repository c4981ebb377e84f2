"""The facts that rules look at, gathered once per decision.

A slot is a place in the group that the spec asks for; at most one living replica fills it, that of the
incarnation in `.status`.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.observed import Observed, Replica
from trainmaster.wire import messages, names


@dataclass(frozen=True)
class Slot:
    """One member of the group to be, and the replica that fills it now (if any, of the right incarnation)."""

    role: str
    index: int
    incarnation: int
    ranks: int
    replica: Replica | None

    @property
    def key(self) -> str:
        """Its name over all incarnations."""
        return names.replica_key(self.role, self.index)

    @property
    def heartbeat(self) -> messages.Heartbeat | None:
        """What its agent said last, if it is up."""
        return self.replica.reporting if self.replica else None


@dataclass(frozen=True)
class Facts:
    """Everything a rule may look at."""

    job: TrainingJob
    observed: Observed
    now: datetime

    @property
    def status(self) -> TrainingJobStatus:
        """The only memory."""
        return self.job.status

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The group in rank order: workers by index, then parameter servers."""
        return tuple(self._slot(role, index) for role, index in group_of(self.job))

    @cached_property
    def complete(self) -> bool:
        """Whether every slot's agent is up and talks to us."""
        return all(slot.heartbeat is not None for slot in self.slots)

    @cached_property
    def attempt_began(self) -> bool:
        """Whether some agent runs, or ran, ranks of the present attempt."""
        return any(beat.attempt == self.status.attempt for beat in self.heartbeats())

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

    def _slot(self, role: str, index: int) -> Slot:
        incarnation = self.status.incarnations.get(names.replica_key(role, index), 0)
        replicas = [r for r in self.observed.replicas if (r.role, r.index, r.incarnation) == (role, index, incarnation)]
        ranks = self.job.spec.workers.ranks if role == names.WORKER else 1
        return Slot(role, index, incarnation, ranks, replicas[0] if replicas else None)


def group_of(job: TrainingJob) -> tuple[tuple[str, int], ...]:
    """(role, index) of every replica that the spec asks for, in rank order."""
    workers = [(names.WORKER, index) for index in range(job.spec.workers.replicas)]
    servers = job.spec.parameter_servers
    return (*workers, *((names.PARAMETER_SERVER, index) for index in range(servers.replicas if servers else 0)))
