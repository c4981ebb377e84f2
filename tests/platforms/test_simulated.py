"""The simulated platform keeps the contract: what is found in the simulation would be found elsewhere."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from trainmaster.core.states.observed import NETWORK_POLICY, Obstacle, Replica
from trainmaster.intake import Intake, Speaker
from trainmaster.loop import UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire.messages import (
    CheckpointRecord,
    Heartbeat,
    Member,
    Orders,
    RankProgress,
    Rendezvous,
    Roster,
)
from trainmaster_trainer.agent.supervise import RankEnded

from tests.builders import a_job, a_replica
from tests.platforms import clock, telling
from tests.platforms.agents import AwayError, SimulatedAgent
from tests.platforms.clock import EPOCH
from tests.platforms.contract import DELETES, EDITS, LOSES, REFUSES, TELLS, Clause, clauses_for
from tests.platforms.crew import Crew
from tests.platforms.nodes import Nodes
from tests.platforms.server import ApiServer, Pod
from tests.platforms.simulated import SimulatedPlatform, View
from tests.platforms.telling import CLAUSES as TELLING
from tests.platforms.telling import EVERY, SERVERS, WORKERS, impossible
from tests.platforms.training import Group, Plan, Storage

CAN = frozenset({EDITS, REFUSES, DELETES, TELLS, LOSES})


class SimulatedWorld:
    """A small simulated cluster, without an operator."""

    def __init__(self) -> None:
        self.key = Key("lab", "digits")
        self.name, self.uid, self.can = str(self.key), "job-1", CAN
        self._random = Random(1)  # noqa: S311  a known seed is the point
        self._server = ApiServer(now=lambda: EPOCH.timestamp() + asyncio.get_running_loop().time())
        self._server.kinds |= {NETWORK_POLICY}
        self._nodes = Nodes(self._server, self._random, self._agent)
        self._intake = Intake(_trust, lambda _: None)
        view = View(self._server, self._random, lambda _: None, self._intake.forget)
        self.platform = SimulatedPlatform(self._server, view, self._intake, self._gate)
        self._loses = False
        self._nodes.watch()
        self._server.create_job(a_job().with_workers(2).build())
        view.open()

    async def news(self, seconds: float) -> None:
        """Virtual seconds cost nothing."""
        await asyncio.sleep(seconds)

    async def start(self, replica: Replica) -> None:
        """The simulated kubelet does it."""

    async def kill(self, replica: Replica) -> None:
        """The container is killed."""
        self._nodes.kill_agent(self._server.pods[replica.name].replica)

    async def edit(self) -> None:
        """A user edits the spec."""
        self._server.edit_job(self.key, {"suspend": True})

    async def refuse(self, refused: bool) -> None:
        """Pod Security."""
        self._server.refuses = Obstacle("Forbidden", "violates PodSecurity") if refused else None

    async def told(self) -> list[str]:
        """All events."""
        return [event.reason for event in self.platform.events]

    def lose_next_reply(self) -> None:
        """Of whatever is called next."""
        self._loses = True

    async def _gate(self, call: str, effect: Callable[[], object]) -> object:
        await asyncio.sleep(0.005)
        result, loses, self._loses = effect(), self._loses, False
        if loses:
            raise UnavailableError(f"{call}: no reply")
        return result

    # What its agents know of their job.

    def group(self, roster: Roster) -> Group:
        """Where ranks meet."""
        return Group(roster, Plan(), Storage(), self._random)

    def newest(self) -> CheckpointRecord | None:
        """There is none."""
        return None

    def _agent(self, pod: Pod) -> SimulatedAgent:
        async def send(heartbeat: Heartbeat) -> Orders | None:
            if pod.replica.name not in self._server.pods:
                raise AwayError("403")
            posted = await self._intake._answer(heartbeat)
            return posted.orders if posted else None

        return SimulatedAgent(
            pod=pod.replica,
            job=self,
            random=self._random,
            send=send,
            leave=lambda code: self._nodes.agent_left(pod.replica, code),
            heard=lambda _: None,
        )


class SimulatedMembers:
    """The simulated training of two workers and three servers, without agents."""

    def __init__(self) -> None:
        lines = [Member(*_place(slot), 0, "10.0.0.1", rank, 1, (50000,), 0) for rank, slot in enumerate(SLOTS)]
        roster = Roster(1, tuple(lines), "10.0.0.1", Rendezvous(40000, "key"), independent=True)
        self._storage = Storage()
        self._plan = Plan(steps=100_000, every=EVERY)
        self._crew = Crew(roster, self._plan, self._storage, Random(1))  # noqa: S311  a known seed is the point
        self._pods: dict[str, Replica] = {}

    async def start(self, *slots: str) -> None:
        """Have them join."""
        for slot in slots:
            role, index = _place(slot)
            self._pods[slot] = pod = a_replica(index, role=role)
            self._crew.check_ports(pod, self._crew.roster, (50000,))
            self._crew.join(pod.uid, (SLOTS.index(slot),), lambda _: None)

    async def kill(self, slot: str) -> None:
        """Kill its rank."""
        rank = SLOTS.index(slot)
        self._crew.kill(self._pods[slot].uid, rank, RankEnded(1, rank, signal="SIGKILL"))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass."""
        while not holds():
            told = [self.told(slot) for slot in SLOTS]
            assert not impossible(told), impossible(told)
            await asyncio.sleep(0.05)

    def told(self, slot: str) -> RankProgress:
        """Return what its agent would say."""
        if slot not in self._pods:
            return RankProgress(SLOTS.index(slot), 0, "load")
        (said,) = self._crew.progress(self._pods[slot].uid)
        return RankProgress(said.rank, said.step, said.phase, resumed_step=said.resumed_step)

    def saved(self) -> int:
        """Return the newest step on the storage."""
        return self._storage.step


SLOTS = (*WORKERS, *SERVERS)


def _place(slot: str) -> tuple[str, int]:
    role, _, index = slot.rpartition("-")
    return role, int(index)


@pytest.mark.parametrize("clause", TELLING, ids=lambda clause: clause.__name__)
def test_simulated_members_say_what_real_ones_say(clause: telling.Clause) -> None:
    async def scenario() -> None:
        await clause(SimulatedMembers())

    clock.run(scenario())


async def _trust(_token: str) -> Speaker:
    """Tokens are the affair of other tests."""
    return Speaker("", lambda _: None)


@pytest.mark.parametrize("clause", clauses_for(CAN), ids=lambda clause: clause.__name__)
def test_the_simulated_platform_keeps_the_contract(clause: Clause) -> None:
    async def scenario() -> None:
        await clause(SimulatedWorld())

    clock.run(scenario())
