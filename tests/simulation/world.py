"""The whole simulated world: server, nodes, agents, jobs, an operator that may die, and what is known of the truth.

One seed, one history. `World.run` lives through a scenario; `watch.py` looks on and notes what must never be.
"""

# ruff: noqa: S311  a seed that is known is the point

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.states.observed import Replica
from trainmaster.loop import LONGEST_PAUSE_SECONDS, UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.messages import CheckpointRecord, Heartbeat, Orders, Roster

from tests.builders import JobBuilder, a_job
from tests.platforms.agents import AwayError, SimulatedAgent
from tests.platforms.clock import EPOCH
from tests.platforms.crew import Crew
from tests.platforms.nodes import Nodes
from tests.platforms.server import ApiServer, Pod
from tests.platforms.training import Group, Plan, Storage
from tests.simulation.lasting import Lasting
from tests.simulation.operators import Operator
from tests.simulation.watch import Watch

KEY = Key("lab", "digits")
LIMIT_SECONDS = 4000.0
MOST_CALLS = 5000
BEFORE, AFTER, LOST = "before", "after", "reply lost"
DIES_AT_A_CALL = "the operator dies at a call"
# What `Faults` make: all that may be in `World.suffered` beside the operator's death at a call.
CALL_FAULTS = {
    "call refused",
    "reply lost",
    "watch broken",
    "watch repeated",
    "heartbeat lost",
    "heartbeat repeated",
    "orders lost",
}


@dataclass
class Faults:
    """How often the API server does not do as it is told, and a line does not carry what is said."""

    unavailable: float = 0.0
    reply_lost: float = 0.0
    beat_lost: float = 0.0  # a heartbeat on its way, or the answer to it
    beat_repeated: float = 0.0  # it arrives once more, after newer ones
    event_repeated: float = 0.0  # a watch tells once more what is old
    watch_broken: float = 0.0  # by event; until the next list nothing is seen
    latency: tuple[float, float] = (0.001, 0.02)
    lag: float = 0.03
    restart_seconds: float = 2.0


@dataclass
class SimulatedJob:
    """A job, and the truth about its training."""

    name: str
    uid: str
    plan: Plan
    random: Random
    watch: Watch
    storage: Storage = field(default_factory=Storage)
    groups: dict[str, Group] = field(default_factory=dict)

    def group(self, roster: Roster) -> Group:
        """Where the ranks of this roster meet."""
        if roster.independent:
            return self._crew(roster)
        if roster.digest not in self.groups:
            self.watch.new_group(self.uid, roster)
            self.groups[roster.digest] = Group(roster, self.plan, self.storage, self.random)
        return self.groups[roster.digest]

    def _crew(self, roster: Roster) -> Crew:
        """One for all that have the attempt's key, whoever comes and goes."""
        name = f"{roster.attempt}:{roster.rendezvous.key}"
        if name not in self.groups:
            self.watch.new_crew(self.uid, roster)
            self.groups[name] = Crew(roster, self.plan, self.storage, self.random, violated=self.watch.violated)
        crew = self.groups[name]
        assert isinstance(crew, Crew)
        return crew

    def newest(self) -> CheckpointRecord | None:
        """The newest complete checkpoint."""
        for group in self.groups.values():
            group.step  # noqa: B018  looking at it saves what was due
        storage = self.storage
        return CheckpointRecord(storage.step, EPOCH.timestamp() + storage.time, "abc") if storage.step else None


class World:
    """Everything, from one seed."""

    def __init__(self, seed: int, *jobs: JobBuilder, plan: Plan | None = None, faults: Faults | None = None) -> None:
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.plan = plan or Plan()
        self.server = ApiServer(now=lambda: EPOCH.timestamp() + asyncio.get_running_loop().time())
        self.nodes = Nodes(self.server, self.random, self._make_agent)
        self.watch = Watch(self.server)
        self.jobs: dict[Key, SimulatedJob] = {}
        self.operator: Operator | None = None
        self.calls: list[str] = []
        self.crashes: dict[int, str] = {}  # number of a call -> BEFORE, AFTER or LOST
        self.down_until = 0.0
        self.injected: Counter[str] = Counter()  # troubles
        self.suffered: Counter[str] = Counter()  # faults of single calls
        self._waits_until = 0.0  # the loop, after a call that failed
        self._to_come = 0  # jobs that users are about to apply again
        self._builders = jobs or (a_job().with_workers(2),)

    # Life.

    async def run(self, scenario: Callable[[World], Awaitable[None]]) -> World:
        """Live through the scenario until all jobs have ended, and a while longer."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.watch.violated(f"{context}"))
        with self.watch.listening_to(logging.getLogger("trainmaster")):
            self.nodes.watch()
            self.server.watchers.append(self.watch.see)
            Lasting(self.server, self._is_served, self.watch.violated).look()
            for builder in self._builders:
                self.submit(builder)
            self._start_operator()
            await scenario(self)
            await self.until(self._all_have_ended, "all jobs to end", every=1.0)
            await asyncio.sleep(90)
            self.watch.the_end(self.nodes)
            if self.operator:
                self.operator.die()
        return self

    def submit(self, builder: JobBuilder) -> None:
        """A user applies a job."""
        job = builder.build()
        training = job.spec.training.model_copy(update={"steps": self.plan.steps})
        checkpoint = job.spec.checkpoint.model_copy(update={"every_steps": self.plan.every})
        spec = job.spec.model_copy(update={"training": training, "checkpoint": checkpoint})
        key = Key(job.namespace, job.name)
        self.jobs[key] = SimulatedJob(str(key), job.uid, self.plan, self.random, self.watch)
        self.server.create_job(job.model_copy(update={"spec": spec}))

    def delete(self, key: Key = KEY) -> None:
        """A user deletes it."""
        self.watch.ends.add(self.job(key).uid)
        self.server.delete_job(key, self.job(key).uid)

    def edit_status(self, key: Key, status: TrainingJobStatus) -> None:
        """A user with `kubectl edit --subresource=status`."""
        stored = TrainingJobStatus.read(status.to_dict())
        self.watch.edited(key, stored)
        self.server.write_status(self.job(key), stored)

    def make_anew(self, key: Key, seconds: float) -> None:
        """A user deletes it, and applies it again after a while."""
        builder = next(builder for builder in self._builders if builder.metadata["name"] == key.name)
        self.delete(key)
        self._to_come += 1
        anew = builder.with_metadata(uid=f"{builder.metadata['uid']}-{len(self.watch.ends)}")
        asyncio.get_running_loop().call_later(seconds, self._submit_again, anew)

    def _submit_again(self, builder: JobBuilder) -> None:
        self._to_come -= 1
        self.submit(builder)

    def _all_have_ended(self) -> bool:
        return not self._to_come and all(job.status.finished for job in self.server.jobs.values())

    # What scenarios look at.

    def job(self, key: Key = KEY) -> TrainingJob:
        """As it is stored."""
        return self.server.jobs[key]

    def status(self, key: Key = KEY) -> TrainingJobStatus:
        """As it is stored."""
        return self.server.jobs[key].status

    def pod(self, slot: str, key: Key = KEY) -> Replica | None:
        """The newest pod of `worker-0` that is there."""
        mine = [pod for pod in self.server.pods_of(key) if names.replica_key(pod.role, pod.index) == slot]
        return max(mine, key=lambda pod: pod.incarnation, default=None)

    def agent(self, slot: str, key: Key = KEY) -> SimulatedAgent | None:
        """The agent in that pod, if it is up."""
        pod = self.pod(slot, key)
        return self.nodes.agents.get(pod.uid) if pod else None

    async def until(self, holds: Callable[[], bool], what: str, every: float = 0.05) -> None:
        """Wait for it; but not in a life that has gone wrong, which may have no end."""
        while not holds():
            if self.watch.violations:
                raise AssertionError(f"something had gone wrong before {what}")
            if asyncio.get_running_loop().time() > LIMIT_SECONDS:
                raise AssertionError(f"waited in vain for {what}: {self._everything()}")
            await asyncio.sleep(every)

    async def phase(self, phase: str, key: Key = KEY) -> None:
        """Wait for this phase."""
        await self.until(lambda: key in self.server.jobs and self.status(key).phase == phase, phase)

    async def step(self, step: int, key: Key = KEY) -> None:
        """Wait until training is at this step."""
        groups = self.jobs[key].groups
        await self.until(lambda: any(group.step >= step for group in groups.values()), f"step {step}")

    # The operator's life.

    def kill_operator(self) -> None:
        """It dies; a new one is there after a while."""
        if self.operator:
            self.operator.die()
            self.operator = None
            asyncio.get_running_loop().call_later(self.faults.restart_seconds, self._start_operator)

    def hand_over(self) -> None:
        """The lease goes to the standby, which knows only what is stored. Who had it is ended, whatever it was at."""
        if self.operator:
            self.operator.die()
            self.operator = None
        self._start_operator()

    def second_operator(self, seconds: float) -> None:
        """Another one takes over; the old one is slow, and does not know for a while. Agents talk to the new one.

        A lease keeps this from happening. Where it does, there may be a restart too many, but nothing worse.
        """
        if self.operator:
            self.operator.view.lag = 2.0
            self.watch.two_until = asyncio.get_running_loop().time() + seconds
            self.operator.platform.on_orders = lambda _uid, _orders: None  # nobody hears them
            asyncio.get_running_loop().call_later(seconds, self.operator.die)
            self.operator = None
            self._start_operator()

    def _start_operator(self) -> None:
        if self.operator is None:
            self.operator = Operator(self.server, self.random, self._gate, self.faults.lag)
            self.operator.start()
            self.operator.view.suffers = self._watch_suffers
            self.operator.platform.on_orders = self.watch.ordered

    def check(self, holds: bool, otherwise: str) -> None:
        """Something that a scenario expects at this moment."""
        if not holds:
            self.watch.violated(otherwise)

    async def _gate(self, call: str, effect: Callable[[], object]) -> object:
        """Every call of the operator goes through here."""
        self.calls.append(call)
        if len(self.calls) > MOST_CALLS:
            self.watch.violated(f"{MOST_CALLS} calls and no end")
            await asyncio.Event().wait()
        crash = self.crashes.get(len(self.calls), "")
        await asyncio.sleep(self.random.uniform(*self.faults.latency))
        if crash == BEFORE:
            await self._die()
        local = call in ("orders", "event")
        if not local and self._refuses():
            self._hampered()
            self.suffered["call refused"] += 1
            await asyncio.sleep(0.2)
            raise UnavailableError("the API server is away")
        result = effect()
        if crash == AFTER:
            await self._die()
        if not local and (crash == LOST or self.random.random() < self.faults.reply_lost):
            self._hampered()
            self.suffered["reply lost"] += 1
            raise UnavailableError("the reply was lost")
        return result

    def _watch_suffers(self) -> str:
        """What becomes of an event on its way: "broken", "repeated", or nothing."""
        for what, probability in (("broken", self.faults.watch_broken), ("repeated", self.faults.event_repeated)):
            if self.random.random() < probability:
                self.suffered[f"watch {what}"] += 1
                return what
        return ""

    def _refuses(self) -> bool:
        return self._is_down() or self.random.random() < self.faults.unavailable

    def _is_down(self) -> bool:
        return asyncio.get_running_loop().time() < self.down_until

    def _is_served(self) -> bool:
        """Whether there is an operator that sees and can write, and does not wait after a call that failed."""
        waits = asyncio.get_running_loop().time() < self._waits_until
        return self.operator is not None and not self.operator.view.cut and not self._is_down() and not waits

    def _hampered(self) -> None:
        self._waits_until = asyncio.get_running_loop().time() + LONGEST_PAUSE_SECONDS + 1

    async def _die(self) -> None:
        self.suffered[DIES_AT_A_CALL] += 1
        self.kill_operator()
        await asyncio.Event().wait()

    def _make_agent(self, pod: Pod) -> SimulatedAgent:
        async def send(heartbeat: Heartbeat) -> Orders | None:
            return await self._carry(heartbeat)

        return SimulatedAgent(
            pod=pod.replica,
            job=self.jobs[pod.owner],
            random=self.random,
            send=send,
            leave=lambda code: self.nodes.agent_left(pod.replica, code),
            heard=lambda orders: self.watch.heard(pod, orders),
        )

    async def _carry(self, heartbeat: Heartbeat) -> Orders | None:
        """The line between an agent and whichever operator there is."""
        self._suffers("heartbeat lost", self.faults.beat_lost / 2)
        if self.operator is None:
            raise AwayError("connection refused")
        if self.random.random() < self.faults.beat_repeated:
            self.suffered["heartbeat repeated"] += 1
            later = self.random.expovariate(1.0)
            asyncio.get_running_loop().call_later(later, self._repeat, heartbeat)
        orders = await self.operator.receive(heartbeat)
        self._suffers("orders lost", self.faults.beat_lost / 2)
        return orders

    def _suffers(self, fault: str, probability: float) -> None:
        if self.random.random() < probability:
            self.suffered[fault] += 1
            raise AwayError(fault)

    def _repeat(self, heartbeat: Heartbeat) -> None:
        """Somebody between the two sends it again. Nobody hears the answer."""
        if self.operator:
            before = self.operator.believed(heartbeat.pod_uid)
            self.operator.overhear(dataclasses.replace(heartbeat, hold=False))
            asyncio.get_running_loop().call_later(0.001, self._check_belief, self.operator, before)

    def _check_belief(self, operator: Operator, before: Heartbeat | None) -> None:
        """What an operator knows of an agent grows no older."""
        now = operator.believed(before.pod_uid) if before else None
        if before and now and now.sequence < before.sequence:
            self.watch.violated(f"{now.role} {now.index}: message {now.sequence} was believed after {before.sequence}")

    def _everything(self) -> str:
        jobs = [f"{key}: {job.status}" for key, job in self.server.jobs.items()]
        pods = [f"{pod.replica}" for pod in self.server.pods.values()]
        agents = [f"{agent.pod.name}: {agent.state}" for agent in self.nodes.agents.values()]
        return "\n".join(["", *jobs, *pods, *agents])
