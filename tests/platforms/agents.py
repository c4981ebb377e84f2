"""A simulated agent: the real supervisor of trainmaster_trainer, with simulated ranks and a simulated line.

What an agent decides is decided by the code that decides it in a pod; only processes, sockets and time are played.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from trainmaster.core.states.observed import Replica
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import CheckpointRecord, Heartbeat, Orders, RankProgress, Rendezvous, Roster
from trainmaster_trainer.agent import supervise
from trainmaster_trainer.agent.supervise import Agent, Event

from tests.platforms.telling import impossible
from tests.platforms.training import Group

RETRY_SECONDS = 0.5


class AwayError(Exception):
    """The operator did not answer."""


class Job(Protocol):
    """What an agent needs to know of its job."""

    name: str
    uid: str

    def group(self, roster: Roster) -> Group:
        """Where the ranks of this roster meet."""

    def newest(self) -> CheckpointRecord | None:
        """The newest complete checkpoint."""


@dataclass
class SimulatedAgent:
    """PID 1 of one pod. `send` is the line to the operator, `leave` ends the process."""

    pod: Replica
    job: Job
    random: Random
    send: Callable[[Heartbeat], Awaitable[Orders | None]]
    leave: Callable[[int], None]
    heard: Callable[[Orders], None]
    group: Group | None = None
    silent: bool = False  # nothing reaches it, and nothing that it says is heard
    _agent: Agent = field(init=False)
    _port: int = 40000
    _doors: int = 50000  # where the ranks of the next lonely start are reached
    _sequence: int = 0
    _seen: str = ""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _urgent: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._agent = Agent(self.pod.role, self.pod.index)

    @property
    def state(self) -> Agent:
        """What the supervisor knows."""
        return self._agent

    def start(self) -> None:
        """Begin to report."""
        self._tasks = [asyncio.create_task(self._keep_held()), asyncio.create_task(self._keep_urgent())]
        for task in self._tasks:
            task.add_done_callback(_must_not_fail)

    def vanish(self) -> None:
        """The process is no more, and says nothing about it."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        if self.group:
            self.group.vanish(self.pod.uid, silent=self.silent)

    def terminate(self) -> None:
        """SIGTERM."""
        self.handle(supervise.Terminate(1.0))

    def handle(self, event: Event) -> None:
        """One event, through the real supervisor."""
        self._agent, actions = supervise.step(self._agent, event)
        for action in actions:
            self._do(action)

    def _do(self, action: supervise.Action) -> None:
        match action:
            case supervise.StartRanks(roster=roster):
                self._start_ranks(roster)
            case supervise.StopRanks() if self.group:
                self.group.stop(self.pod.uid)
            case supervise.ReportNow():
                self._urgent.set()
            case supervise.Leave(exit_code=code):
                self.vanish()
                self.leave(code)
            case _:
                pass

    def _start_ranks(self, roster: Roster) -> None:
        if (roster.rendezvous.port, roster.rendezvous.key) == (self._offer().port, self._offer().key):
            self._port += 1
        self.group = self.job.group(roster)
        line = supervise.member_of(roster, self.pod.role, self.pod.index)
        if line is not None and line.ports:
            self.group.check_ports(self.pod, roster, self._offer().ports)
            self._doors += 1
        self.group.join(self.pod.uid, tuple(sorted(self._agent.live)), self.handle)

    def _offer(self) -> Rendezvous:
        return Rendezvous(self._port, f"{self.pod.name}:{self._port}", (self._doors,))

    def _rendezvous(self) -> Rendezvous | None:
        """As the real one: its own ports are those of its line."""
        roster = self._agent.roster
        line = supervise.member_of(roster, self.pod.role, self.pod.index) if roster else None
        return dataclasses.replace(roster.rendezvous, ports=line.ports if line else ()) if roster else None

    def _heartbeat(self, hold: bool) -> Heartbeat:
        self._sequence += 1
        roster = self._agent.roster
        return Heartbeat(
            job=self.job.name,
            job_uid=self.job.uid,
            role=self.pod.role,
            index=self.pod.index,
            incarnation=self.pod.incarnation,
            pod_uid=self.pod.uid,
            sequence=self._sequence,
            state=self._agent.state,
            attempt=self._agent.attempt,
            offer=self._offer(),
            rendezvous=self._rendezvous(),
            start=self._agent.start,
            roster_digest=roster.digest if roster else "",
            ranks=self._progress(),
            exit=self._agent.exit,
            good_end=self._agent.good_end,
            checkpoint=self.job.newest(),
            orders_seen=self._seen,
            hold=hold,
        )

    def _progress(self) -> tuple[RankProgress, ...]:
        """What the pages of the attempt and start say that the supervisor speaks of."""
        group = self.group
        if group is None or group.roster.attempt != self._agent.attempt or self._agent.state == AgentState.WAITING:
            return ()
        attempt, start = self._agent.attempt, self._agent.start or 0
        pages = group.progress(self.pod.uid)
        told = tuple(dataclasses.replace(rank, attempt=attempt, start=start) for rank in pages)
        assert not impossible(told), impossible(told)
        return told

    async def _keep_held(self) -> None:
        while True:
            await self._exchange(hold=True)

    async def _keep_urgent(self) -> None:
        while True:
            await self._urgent.wait()
            self._urgent.clear()
            if not await self._exchange(hold=False):
                self._urgent.set()

    async def _exchange(self, hold: bool) -> bool:
        try:
            await asyncio.sleep(self.random.uniform(0.001, 0.02))
            orders = await self._call(hold)
            await asyncio.sleep(self.random.uniform(0.001, 0.02))
        except AwayError:
            await asyncio.sleep(self.random.uniform(0.5, 1) * RETRY_SECONDS)
            return False
        if orders is not None and not self.silent:
            self._seen = orders.version
            self.heard(orders)
            self.handle(supervise.OrdersArrived(orders))
        return True

    async def _call(self, hold: bool) -> Orders | None:
        if self.silent:
            raise AwayError("no route")
        return await self.send(self._heartbeat(hold))


def _must_not_fail(task: asyncio.Task[None]) -> None:
    """Let the loop's exception handler hear of it."""
    if not task.cancelled() and (error := task.exception()):
        raise error
