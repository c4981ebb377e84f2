"""Everything that can go wrong, as one-line stories for the random simulation. Used by `lives.py`.

`cost` is the most that a trouble may take from the budget: what is nobody's fault costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.core.observed import Obstacle, Replica
from trainmaster.queueing import Key

from tests.platforms.agents import SimulatedAgent
from tests.simulation.scenarios import KILLED, an_error
from tests.simulation.world import World

Happens = Callable[[World, Key], int]


@dataclass(frozen=True)
class Trouble:
    """Something that happens to a job at some moment. `happens` tells what it may cost, if it hit anything."""

    happens: Happens
    weight: int = 1

    @property
    def name(self) -> str:
        """For the record."""
        return self.happens.__name__


def _later(seconds: float, what: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(seconds, what)


def _pod(world: World, key: Key) -> Replica | None:
    pods = [pod for pod in world.server.pods_of(key) if pod.alive]
    return world.random.choice(pods) if pods else None


def _agent(world: World, key: Key) -> SimulatedAgent | None:
    agents = [world.nodes.agents.get(pod.uid) for pod in world.server.pods_of(key)]
    living = [agent for agent in agents if agent and agent.state.live and not agent.silent]
    return world.random.choice(living) if living else None


# The ranks.


def a_rank_is_killed(world: World, key: Key) -> int:
    agent = _agent(world, key)
    if agent and agent.group:
        agent.group.kill(agent.pod.uid, min(agent.state.live), KILLED)
    return 1 if agent else 0


def a_rank_raises(world: World, key: Key) -> int:
    agent = _agent(world, key)
    if agent and agent.group:
        text = "".join(world.random.choices("abcdefgh", k=8))
        agent.group.kill(agent.pod.uid, min(agent.state.live), an_error(text))
    return 1 if agent else 0


def a_container_is_killed(world: World, key: Key) -> int:
    pod = _pod(world, key)
    if pod is None or pod.uid not in world.nodes.agents or pod.node in world.nodes.lost:
        return 0
    world.nodes.kill_agent(pod, reason="Error")  # twice for memory at one step would rightly end the job
    return 1


# Pods and nodes.


def a_pod_is_deleted(world: World, key: Key) -> int:
    if pod := _pod(world, key):
        world.server.delete_pod(pod.name, pod.uid)
    return 0


def a_pod_is_evicted(world: World, key: Key) -> int:
    if pod := _pod(world, key):
        world.nodes.evict(pod)
    return 0


def a_pod_is_deleted_by_force(world: World, key: Key) -> int:
    if pod := _pod(world, key):
        world.nodes.remove_at_once(pod)
    return 0


def a_pod_hangs_in_terminating(world: World, key: Key) -> int:
    if pod := _pod(world, key):
        world.nodes.stuck.add(pod.uid)
        world.server.delete_pod(pod.name, pod.uid)
    return 0


def a_node_is_lost(world: World, key: Key) -> int:
    return _lose(world, key, dies=True)


def a_node_is_cut_off(world: World, key: Key) -> int:
    return _lose(world, key, dies=False)


def _lose(world: World, key: Key, dies: bool) -> int:
    pod = _pod(world, key)
    if pod is None or not pod.node or pod.node in world.nodes.lost:
        return 0
    seconds = world.random.choice([3.0, 10.0, 40.0, 100.0])
    world.nodes.lose(pod.node, seconds, dies)
    on_it = sum(1 for other in world.server.pods.values() if other.replica.node == pod.node)
    # A node that is back before it was given up is not seen to have been lost: its containers merely ended.
    return 2 * on_it if seconds < world.nodes.weather.give_up_node else 0


def an_agent_is_not_heard(world: World, key: Key) -> int:
    agent = _agent(world, key)
    if agent and agent.pod.node not in world.nodes.lost:
        agent.silent = True
        node = agent.pod.node
        _later(world.random.uniform(1, 60), lambda: setattr(agent, "silent", node in world.nodes.lost))
    return 0


def no_image_can_be_pulled(world: World, key: Key) -> int:
    world.nodes.weather.obstacle = Obstacle("ErrImagePull", "no such image")
    _later(world.random.uniform(1, 60), lambda: setattr(world.nodes.weather, "obstacle", None))
    return 0


# The control plane.


def the_operator_dies(world: World, key: Key) -> int:
    world.kill_operator()
    return 0


def two_operators_are_at_work(world: World, key: Key) -> int:
    world.second_operator(world.random.uniform(0.1, 3))
    return 0


def the_operator_dies_at_a_call(world: World, key: Key) -> int:
    call = len(world.calls) + world.random.randint(1, 12)
    world.crashes[call] = world.random.choice(["before", "after"])
    return 0


def the_api_server_is_away(world: World, key: Key) -> int:
    world.down_until = asyncio.get_running_loop().time() + world.random.uniform(1, 60)
    return 0


def the_watch_is_cut(world: World, key: Key) -> int:
    operator = world.operator
    if operator:
        operator.view.cut = True
        _later(world.random.uniform(0.5, 10), operator.view.relist)
    return 0


def the_watch_repeats_itself(world: World, key: Key) -> int:
    if world.operator:
        world.operator.view.replay()
    return 0


# People.


def somebody_edits_an_annotation(world: World, key: Key) -> int:
    for seconds in (0.0, 0.05, 0.1):
        _later(seconds, lambda: key in world.server.jobs and world.server.edit_job(key, {}))
    return 0


def somebody_suspends_it_for_a_while(world: World, key: Key) -> int:
    world.server.edit_job(key, {"suspend": True})
    _later(world.random.uniform(0.1, 30), lambda: _resume(world, key))
    return 0


def _resume(world: World, key: Key) -> None:
    if key in world.server.jobs:
        world.server.edit_job(key, {"suspend": False})


def somebody_scales_it(world: World, key: Key) -> int:
    spec = world.job(key).spec
    replicas = max(world.random.randint(1, 4), 2 if spec.strategy.type == "Gossip" else 1)
    world.server.edit_job(key, {"workers": spec.workers.model_copy(update={"replicas": replicas})})
    return 0


TROUBLES = (
    Trouble(a_rank_is_killed, 4),
    Trouble(a_rank_raises, 2),
    Trouble(a_container_is_killed, 2),
    Trouble(a_pod_is_deleted, 3),
    Trouble(a_pod_is_evicted, 3),
    Trouble(a_pod_is_deleted_by_force, 2),
    Trouble(a_pod_hangs_in_terminating),
    Trouble(a_node_is_lost, 2),
    Trouble(a_node_is_cut_off, 2),
    Trouble(an_agent_is_not_heard, 2),
    Trouble(no_image_can_be_pulled),
    Trouble(the_operator_dies, 3),
    Trouble(the_operator_dies_at_a_call, 4),
    Trouble(two_operators_are_at_work),
    Trouble(the_api_server_is_away, 2),
    Trouble(the_watch_is_cut, 2),
    Trouble(the_watch_repeats_itself),
    Trouble(somebody_edits_an_annotation, 2),
    Trouble(somebody_suspends_it_for_a_while, 2),
    Trouble(somebody_scales_it, 2),
)
