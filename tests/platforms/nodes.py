"""Scheduler, kubelets and nodes of the simulated cluster: what happens to a pod between creation and removal."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from trainmaster.core.states.observed import Ending, Obstacle, Replica, ReplicaPhase

from tests.platforms.agents import SimulatedAgent
from tests.platforms.server import ApiServer, Change, NotFoundError, Pod

GRACE_SECONDS = 5.0

MakeAgent = Callable[[Pod], SimulatedAgent]


@dataclass
class Weather:
    """How slow the cluster is, and what is wrong with it."""

    schedule: tuple[float, float] = (0.01, 0.3)
    start: tuple[float, float] = (0.1, 1.0)
    obstacle: Obstacle | None = None  # no container starts while it is there
    spread: bool = False  # pods go to nodes of their own, where there are any left
    mark_node: float = 8.0  # a node that is silent for so long is said to be
    give_up_node: float = 15.0  # and after so long it loses its pods


@dataclass
class Nodes:
    """All machines, and the pods on them."""

    server: ApiServer
    random: Random
    make_agent: MakeAgent
    weather: Weather = field(default_factory=Weather)
    agents: dict[str, SimulatedAgent] = field(default_factory=dict)  # by pod uid
    lost: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)  # uids of pods whose removal hangs
    _addresses: int = 1
    _seen: dict[str, str] = field(default_factory=dict)  # uid -> how far its pod is

    def watch(self) -> None:
        """Kubelets see everything at once; what they do takes time."""
        self.server.watchers.append(self._note)

    def _note(self, change: Change) -> None:
        if isinstance(change.value, Pod):
            uid, replica = change.value.replica.uid, change.value.replica
            if uid not in self._seen:
                self._seen[uid] = "created"
                self._later(self.random.uniform(*self.weather.schedule), lambda: self._schedule(replica))
            if replica.deleting and self._seen[uid] != "ending":
                self._seen[uid] = "ending"
                self._later(self.random.uniform(0, 0.05), lambda: self._end(replica.name, uid))

    # From creation to a running agent.

    def _schedule(self, pod: Replica) -> None:
        free = sorted(f"node-{number}" for number in range(6) if f"node-{number}" not in self.lost)
        if not free:
            self._later(1.0, lambda: self._schedule(pod))
        elif self._there(pod):
            used = {other.replica.node for other in self.server.pods.values()} if self.weather.spread else set()
            self.server.update_pod(pod.name, pod.uid, node=self.random.choice(sorted({*free} - used) or free))
            self._later(self.random.uniform(*self.weather.start), lambda: self._start(pod))

    def _start(self, pod: Replica) -> None:
        stored = self._there(pod)
        if stored is None or stored.replica.deleting or stored.replica.node in self.lost:
            return
        if self.weather.obstacle:
            self.server.update_pod(pod.name, pod.uid, obstacle=self._met(stored.replica, self.weather.obstacle))
            self._later(1.0, lambda: self._start(pod))
            return
        self._addresses += 1
        address = f"10.0.{self._addresses // 250}.{self._addresses % 250}"
        self.server.update_pod(pod.name, pod.uid, phase=ReplicaPhase.RUNNING, address=address, obstacle=None)
        agent = self.make_agent(self.server.pods[pod.name])
        self.agents[pod.uid] = agent
        agent.start()

    def _met(self, pod: Replica, obstacle: Obstacle) -> Obstacle:
        """Since when, unless it is the same as before."""
        before = pod.obstacle
        since = before.since if before and before.reason == obstacle.reason else self.server.now()
        return dataclasses.replace(obstacle, since=since)

    # The end.

    def agent_left(self, pod: Replica, code: int) -> None:
        """PID 1 has ended by itself, or as it was told."""
        self.agents.pop(pod.uid, None)
        stored = self._there(pod)
        if stored is None or stored.replica.node in self.lost:
            return
        if stored.replica.deleting:
            self._remove(pod.name, pod.uid)
        else:
            phase = ReplicaPhase.FAILED if code else ReplicaPhase.SUCCEEDED
            self.server.update_pod(pod.name, pod.uid, phase=phase, ending=Ending(code, "Ended"))

    def kill_agent(self, pod: Replica, reason: str = "OOMKilled") -> None:
        """The container is killed."""
        agent = self.agents.pop(pod.uid, None)
        if agent:
            agent.vanish()
            self.server.update_pod(pod.name, pod.uid, phase=ReplicaPhase.FAILED, ending=Ending(137, reason))

    def evict(self, pod: Replica) -> None:
        """Somebody with a right to do so disrupts it."""
        self.server.update_pod(pod.name, pod.uid, disruption="EvictionByEvictionAPI")
        self.server.delete_pod(pod.name, pod.uid)

    def remove_at_once(self, pod: Replica) -> None:
        """Kubectl delete --force: the object goes, the process a moment later."""
        self.server.remove_pod(pod.name, pod.uid)
        self._later(self.random.uniform(0, 2), lambda: self._kill(pod.uid))

    def _end(self, name: str, uid: str) -> None:
        stored = self.server.pods.get(name)
        if stored is None or stored.replica.uid != uid or stored.replica.node in self.lost:
            return
        agent = self.agents.get(uid)
        if agent is None:
            self._remove(name, uid)
            return
        agent.terminate()
        self._later(GRACE_SECONDS, lambda: self._kill_and_remove(name, uid))

    def _kill_and_remove(self, name: str, uid: str) -> None:
        self._kill(uid)
        self._remove(name, uid)

    def _kill(self, uid: str) -> None:
        agent = self.agents.pop(uid, None)
        if agent:
            agent.vanish()

    def _remove(self, name: str, uid: str) -> None:
        if uid in self.stuck:
            return  # a volume that does not detach, a finalizer of somebody else
        with contextlib.suppress(NotFoundError):
            self.server.remove_pod(name, uid)

    def release(self, name: str, uid: str) -> None:
        """Its removal hangs no longer."""
        self.stuck.discard(uid)
        self._end(name, uid)

    # Nodes.

    def lose(self, node: str, seconds: float, dies: bool) -> None:
        """The node is silent for so long. `dies`: its processes are gone at once; else they go on, unheard."""
        self.lost.add(node)
        for agent in self._on(node):
            agent.silent = True
            if dies:
                agent.vanish()
            elif agent.group:
                agent.group.cut()
        if seconds > self.weather.mark_node:
            self._later(self.weather.mark_node, lambda: self._mark(node, True))
        if seconds > self.weather.give_up_node:
            self._later(self.weather.give_up_node, lambda: self._give_up(node))
        self._later(seconds, lambda: self._return(node, dies))

    def _mark(self, node: str, silent: bool) -> None:
        for name, pod in list(self.server.pods.items()):
            if pod.replica.node == node and pod.replica.phase == ReplicaPhase.RUNNING:
                self.server.update_pod(name, pod.replica.uid, node_silent=silent)

    def _give_up(self, node: str) -> None:
        for name, pod in list(self.server.pods.items()):
            if pod.replica.node == node and pod.replica.phase in (ReplicaPhase.PENDING, ReplicaPhase.RUNNING):
                self.server.update_pod(name, pod.replica.uid, disruption="DeletionByTaintManager")
                self.server.delete_pod(name, pod.replica.uid)

    def _return(self, node: str, died: bool) -> None:
        """The kubelet is back: what was deleted meanwhile ends, what had died is told."""
        self.lost.discard(node)
        self._mark(node, False)
        for name, pod in list(self.server.pods.items()):
            if pod.replica.node != node:
                continue
            uid, agent = pod.replica.uid, self.agents.get(pod.replica.uid)
            if agent and not died:
                agent.silent = False
            if died and agent:
                self.agents.pop(uid)
                self.server.update_pod(name, uid, phase=ReplicaPhase.FAILED, ending=Ending(None, "NodeLost"))
            if pod.replica.deleting:
                self._end(name, uid)
            elif pod.replica.phase == ReplicaPhase.PENDING:
                self._start(pod.replica)

    def _on(self, node: str) -> list[SimulatedAgent]:
        return [
            self.agents[pod.replica.uid]
            for pod in self.server.pods.values()
            if pod.replica.node == node and pod.replica.uid in self.agents
        ]

    def _there(self, pod: Replica) -> Pod | None:
        stored = self.server.pods.get(pod.name)
        return stored if stored and stored.replica.uid == pod.uid else None

    @staticmethod
    def _later(seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, what)
