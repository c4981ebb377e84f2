"""A stage for one job: a world without delay or fault, in which a test plays the cluster and the agents.

What is decided is written (as JSON, and read back) and done at once; agents do something only when the test says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta

from trainmaster.api.job import TrainingJob
from trainmaster.api.policies import Storage
from trainmaster.api.status import Condition, TrainingJobStatus
from trainmaster.core.decide import Decision, decide
from trainmaster.core.situation import revision
from trainmaster.core.states import actions
from trainmaster.core.states.observed import Observed, Obstacle, Replica, ReplicaPhase
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import ExitReport, Heartbeat, Orders

from tests.builders import NOON, JobBuilder, a_heartbeat, a_replica, failed, finished, running, saying, written

MAX_TURNS = 25
NO_RANKS = (AgentState.WAITING, AgentState.FAILED, AgentState.FINISHED)  # states of agents that have none to end


class Stage:
    """The job, its replicas, what their agents were told, and all that was decided."""

    def __init__(self, job: JobBuilder | TrainingJob, now: datetime = NOON) -> None:
        self.job = job if isinstance(job, TrainingJob) else job.build()
        self.now = now
        self.replicas: dict[str, Replica] = {}
        self.objects: frozenset[str] = frozenset()
        self.kinds = frozenset({"Service"})
        self.began = 0.0
        self.private_checkpoints = False
        self.default_storage: Storage | None = None
        self.refused: tuple[Obstacle, ...] = ()
        self.refusing: frozenset[str] = frozenset()
        self.refusal = ""
        self.orders: dict[str, Orders] = {}
        self.events: list[actions.PostEvent] = []
        self.writes: list[TrainingJobStatus] = []
        self.created: list[str] = []
        self.job_deleted = False
        self.wake_at: datetime | None = None

    @property
    def status(self) -> TrainingJobStatus:
        """As it stands written."""
        return self.job.status

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, as it stands written."""
        return next((one for one in self.status.conditions if one.type == kind), None)

    def told(self, kind: str) -> tuple[str, str]:
        """Whether that condition holds, and the reason; nothing where there is none."""
        found = self.condition(kind)
        return (found.status, found.reason) if found else ("", "")

    @property
    def observed(self) -> Observed:
        """What a look would find now."""
        found = tuple(self.replicas.values())
        given = self.private_checkpoints, self.default_storage
        return Observed(found, self.objects, self.refused, self.began, *given, self.kinds)

    def decide(self) -> Decision:
        """What would be decided now; nothing is done."""
        return decide(self.job, self.observed, self.now)

    def turn(self) -> Decision:
        """One pass of the loop."""
        decision = self.decide()
        if decision.status != self.status:
            self.writes.append(decision.status)
            self.job = self.job.model_copy(update={"status": written(decision.status)})
        self.events += decision.events
        for action in decision.actions:
            self._do(action)
        self.wake_at = decision.wake_at
        return decision

    def settle(self) -> Stage:
        """Turns until nothing is left to do now."""
        for _ in range(MAX_TURNS):
            before = (self.job, dict(self.replicas), dict(self.orders), self.objects)
            again = self.turn().again
            if not again and before == (self.job, self.replicas, self.orders, self.objects):
                return self
        raise AssertionError(f"no end after {MAX_TURNS} turns: {self.status}")

    def wait(self, seconds: float) -> Stage:
        """Let time pass, then settle."""
        self.now += timedelta(seconds=seconds)
        return self.settle()

    # What the cluster does.

    def change(self, key: str, how: Callable[[Replica], Replica]) -> Stage:
        """Something happens to a replica; settle."""
        replica = self.replica(key)
        self.replicas[replica.name] = how(replica)
        return self.settle()

    def refuse(self, *keys: str, reason: str = "Forbidden") -> Stage:
        """From now on no pods are made for these, nor objects of these kinds, and all others are made."""
        self.refusing, self.refusal = frozenset(keys), reason
        return self

    def vanish(self, key: str) -> Stage:
        """A replica is simply gone."""
        del self.replicas[self.replica(key).name]
        return self.settle()

    def respec(self, **spec: object) -> Stage:
        """The user edits the spec (snake_case), settle."""
        update = {"spec": self.job.spec.model_copy(update=spec)}
        metadata = self.job.metadata.model_copy(update={"generation": self.job.metadata.generation + 1})
        self.job = self.job.model_copy(update={**update, "metadata": metadata})
        return self.settle()

    def scale(self, workers: int) -> Stage:
        """The user changes the number of workers, settle."""
        return self.respec(workers=self.job.spec.workers.model_copy(update={"replicas": workers}))

    def replica(self, key: str) -> Replica:
        """The newest incarnation of `worker-0`."""
        found = [r for r in self.replicas.values() if names.replica_key(r.role, r.index) == key]
        return max(found, key=lambda replica: replica.incarnation)

    # What the agents do.

    def call_in(self, *keys: str) -> Stage:
        """These agents (all living ones) start and wait for orders; settle."""
        for replica in self._chosen(keys):
            if replica.heartbeat is None:
                started = dataclasses.replace(replica, phase=ReplicaPhase.RUNNING, obstacle=None)
                beat = a_heartbeat(40000 + 100 * replica.index + 50 * (replica.role != names.WORKER))
                self.replicas[replica.name] = saying(started, beat)
        return self.settle()

    def obey(self, *keys: str, step: int = 1, phase: str = "train") -> Stage:
        """These agents (all) end ranks that are not to be; those told to run do so, and stand at `step`; settle."""
        self._wait_as_told(keys, (*NO_RANKS, AgentState.RUNNING))
        self.settle()
        for replica in self._chosen(keys):
            orders = self.orders.get(replica.uid)
            if orders and orders.verb == Verb.RUN and orders.roster and replica.heartbeat:
                beat = running(replica.heartbeat, orders.roster, step, phase, rank=replica.index)
                self.replicas[replica.name] = saying(replica, beat)
        return self.settle()

    def say(self, key: str, change: Callable[[Heartbeat], Heartbeat]) -> Stage:
        """An agent says something; settle."""
        return self.change(key, lambda replica: saying(replica, change(_beat(replica))))

    def finish(self, *keys: str) -> Stage:
        """The ranks of these agents (of all) end well; settle."""
        for replica in self._chosen(keys):
            self.replicas[replica.name] = saying(replica, finished(_beat(replica)))
        return self.settle()

    def rank_dies(self, key: str, report: ExitReport) -> Stage:
        """A rank of this agent dies; settle."""
        return self.say(key, lambda beat: failed(beat, report))

    def train(self, step: int = 1) -> Stage:
        """From wherever it is to Running."""
        return self.settle().call_in().obey(step=step)

    def operator_restarts(self) -> Stage:
        """All memory but the status is lost; nobody has called in again yet."""
        self.orders.clear()
        self.began = self.now.timestamp()
        for name, replica in self.replicas.items():
            self.replicas[name] = dataclasses.replace(replica, heartbeat=None)
        return self.settle()

    def _chosen(self, keys: Iterable[str]) -> list[Replica]:
        wanted = set(keys)
        living = [replica for replica in self.replicas.values() if replica.alive]
        return [r for r in living if not wanted or names.replica_key(r.role, r.index) in wanted]

    def _wait_as_told(self, keys: Iterable[str] = (), states: Collection[str] = NO_RANKS) -> None:
        """Agents say for which attempt they wait: at once, or after they have ended their ranks."""
        for replica in self._chosen(keys):
            orders, beat = self.orders.get(replica.uid), replica.reporting
            if beat and orders and orders.verb == Verb.WAIT and orders.attempt > beat.attempt and beat.state in states:
                beat = dataclasses.replace(beat, state=AgentState.WAITING, attempt=orders.attempt, ranks=())
                self.replicas[replica.name] = saying(replica, beat)

    def _do(self, action: actions.Action) -> None:
        match action:
            case actions.CreateReplica(role, index, incarnation):
                made = a_replica(index, incarnation, role)
                told = revision.revision_of(self.job, role)
                self._create(dataclasses.replace(made, phase=ReplicaPhase.PENDING, revision=told))
            case actions.DeleteReplica(name, uid):
                if name in self.replicas and self.replicas[name].uid == uid:
                    del self.replicas[name]
            case actions.GiveOrders(orders):
                self.orders.update(orders)
                self._wait_as_told()
            case actions.EnsureObject(kind):
                self.objects |= {kind} - self.refusing
            case actions.DeleteObject(kind):
                self.objects -= {kind}
            case actions.DeleteJob():
                self.job_deleted = True
            case actions.PostEvent():
                raise AssertionError("events are not among the actions")

    def _create(self, made: Replica) -> None:
        """Or refuse to, and keep in mind since when."""
        before = [obstacle for obstacle in self.refused if obstacle.name == made.name]
        if names.replica_key(made.role, made.index) in self.refusing:
            if not before:
                why = Obstacle(self.refusal, f"{made.name} is refused", self.now.timestamp(), made.name)
                self.refused = (*self.refused, why)
            return
        self.refused = tuple(obstacle for obstacle in self.refused if obstacle not in before)
        if made.name not in self.replicas:
            self.replicas[made.name] = dataclasses.replace(made, created=self.now.timestamp())
            self.created.append(made.name)


def _beat(replica: Replica) -> Heartbeat:
    assert replica.heartbeat is not None
    return replica.heartbeat


def a_stage(workers: int = 2, **spec: object) -> Stage:
    """A new job of so many workers, nothing done yet."""
    return Stage(JobBuilder().where(**spec).with_workers(workers))


def a_running_group(workers: int = 2, step: int = 1, **spec: object) -> Stage:
    """A job whose workers all train."""
    return a_stage(workers, **spec).train(step)
