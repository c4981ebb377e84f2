"""Everything that can go wrong, as one-line stories for the random simulation. Used by `lives.py`.

`cost` is the most that a trouble may take from the budget: what is nobody's fault costs nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainmaster.core.states.observed import Obstacle, Replica
from trainmaster.queueing import Key
from trainmaster_trainer.agent.supervise import RankEnded

from tests.platforms.agents import SimulatedAgent
from tests.simulation.scenarios import KILLED, an_error
from tests.simulation.world import AFTER, BEFORE, CALL_FAULTS, World

START_SECONDS = 90  # of random jobs
NO_IMAGE = Obstacle("ErrImagePull", "no such image")
NO_ROOM = Obstacle("Unschedulable", "0/6 nodes are available: 6 Insufficient cpu.")
# The API server's answer to the creation of a pod, and for how long at the most, in seconds. What is merely full may be
# so for longer than `startSeconds`; what ends a job after that time must not last as long in a life that is to succeed.
REFUSALS = (
    (Obstacle("QuotaExceeded", 'pods "a" is forbidden: exceeded quota: compute'), 2 * START_SECONDS),
    (Obstacle("DeniedByPolicy", 'admission webhook "images.example.com" denied the request: not signed'), 20),
)
STATUS_EDITS: tuple[dict[str, Any], ...] = (
    {"message": "edited by hand"},
    {"conditions": ()},
    {"progress": None, "checkpoint": None},
    {"incarnations": {}},
)

Happens = Callable[[World, Key], int | None]


@dataclass(frozen=True)
class Trouble:
    """Something that happens to a job at some moment. `happens` tells what it may cost; None: it hit nothing."""

    happens: Happens
    weight: int = 1
    kills: bool = False  # a process dies of it

    @property
    def name(self) -> str:
        """For the record."""
        return self.happens.__name__.replace("_", " ")


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


def a_rank_is_killed(world: World, key: Key) -> int | None:
    return _kill(world, key, KILLED)


def a_rank_raises(world: World, key: Key) -> int | None:
    return _kill(world, key, an_error("".join(world.random.choices("abcdefgh", k=8))))


def _kill(world: World, key: Key, how: RankEnded) -> int | None:
    agent = _agent(world, key)
    if agent is None or agent.group is None:
        return None
    agent.group.kill(agent.pod.uid, min(agent.state.live), how)
    return 1


def a_container_is_killed(world: World, key: Key) -> int | None:
    pod = _pod(world, key)
    if pod is None or pod.uid not in world.nodes.agents or pod.node in world.nodes.lost:
        return None
    world.nodes.kill_agent(pod, reason="Error")  # twice for memory at one step would rightly end the job
    return 1


# Pods and nodes.


def to_a_pod(happens: Callable[[World, Replica], object]) -> Happens:
    """That costs nothing, whatever pod it is."""

    @functools.wraps(happens)
    def hits(world: World, key: Key) -> int | None:
        pod = _pod(world, key)
        if pod is None:
            return None
        happens(world, pod)
        return 0

    return hits


@to_a_pod
def a_pod_is_deleted(world: World, pod: Replica) -> None:
    world.server.delete_pod(pod.name, pod.uid)


@to_a_pod
def a_pod_is_evicted(world: World, pod: Replica) -> None:
    world.nodes.evict(pod)


@to_a_pod
def a_pod_is_deleted_by_force(world: World, pod: Replica) -> None:
    world.nodes.remove_at_once(pod)


@to_a_pod
def a_pod_hangs_in_terminating(world: World, pod: Replica) -> None:
    world.nodes.stuck.add(pod.uid)
    world.server.delete_pod(pod.name, pod.uid)
    _later(world.random.uniform(5, 100), lambda: world.nodes.release(pod.name, pod.uid))


def a_node_is_lost(world: World, key: Key) -> int | None:
    return _lose(world, key, dies=True)


def a_node_is_cut_off(world: World, key: Key) -> int | None:
    return _lose(world, key, dies=False)


def _lose(world: World, key: Key, dies: bool) -> int | None:
    pod = _pod(world, key)
    if pod is None or not pod.node or pod.node in world.nodes.lost:
        return None
    seconds = world.random.choice([3.0, 10.0, 40.0, 100.0])
    world.nodes.lose(pod.node, seconds, dies)
    on_it = sum(1 for other in world.server.pods.values() if other.replica.node == pod.node)
    # A node that is back before it was given up is not seen to have been lost: its containers merely ended.
    return 2 * on_it if seconds < world.nodes.weather.give_up_node else 0


def an_agent_is_not_heard(world: World, key: Key) -> int | None:
    agent = _agent(world, key)
    if agent is None or agent.pod.node in world.nodes.lost:
        return None
    agent.silent = True
    node = agent.pod.node
    _later(world.random.uniform(1, 60), lambda: setattr(agent, "silent", node in world.nodes.lost))
    return 0


# What keeps the replacement of a pod from starting.


@to_a_pod
def a_pod_is_evicted_and_no_image_can_be_pulled(world: World, pod: Replica) -> None:
    world.nodes.weather.obstacle = NO_IMAGE
    _later(world.random.uniform(1, 20), lambda: setattr(world.nodes.weather, "obstacle", None))
    world.nodes.evict(pod)


@to_a_pod
def a_pod_is_evicted_and_finds_no_room_and_then_no_image(world: World, pod: Replica) -> None:
    world.nodes.weather.obstacle = NO_ROOM
    seconds = world.random.uniform(1, 2 * START_SECONDS)
    _later(seconds, lambda: setattr(world.nodes.weather, "obstacle", NO_IMAGE))
    _later(seconds + world.random.uniform(1, 20), lambda: setattr(world.nodes.weather, "obstacle", None))
    world.nodes.evict(pod)


@to_a_pod
def a_pod_is_evicted_and_the_next_is_refused(world: World, pod: Replica) -> None:
    world.server.refuses, seconds = world.random.choice(REFUSALS)
    _later(world.random.uniform(1, seconds), lambda: setattr(world.server, "refuses", None))
    world.nodes.evict(pod)


# The control plane.


def the_operator_dies(world: World, key: Key) -> int | None:
    if world.operator is None:
        return None
    world.kill_operator()
    return 0


def the_operator_dies_at_a_call(world: World, key: Key) -> int | None:
    """It is counted when it comes to that call."""
    call = len(world.calls) + world.random.randint(1, 12)
    world.crashes[call] = world.random.choice([BEFORE, AFTER])
    return None


def two_operators_are_at_work(world: World, key: Key) -> int | None:
    if world.operator is None:
        return None
    world.second_operator(world.random.uniform(0.1, 3))
    return 0


def the_api_server_is_away(world: World, key: Key) -> int | None:
    world.down_until = asyncio.get_running_loop().time() + world.random.uniform(1, 60)
    return 0


def the_watch_is_cut(world: World, key: Key) -> int | None:
    operator = world.operator
    if operator is None:
        return None
    operator.view.cut = True
    _later(world.random.uniform(0.5, 10), operator.view.relist)
    return 0


def the_watch_repeats_itself(world: World, key: Key) -> int | None:
    if world.operator is None:
        return None
    world.operator.view.replay()
    return 0


# People.


def somebody_edits_an_annotation(world: World, key: Key) -> int | None:
    for seconds in (0.0, 0.05, 0.1):
        _later(seconds, lambda: key in world.server.jobs and world.server.edit_job(key, {}))
    return 0


def somebody_edits_what_disturbs_nobody(world: World, key: Key) -> int | None:
    """Of the spec: more restarts, and how long the job stays."""
    spec = world.job(key).spec
    more = {"max_restarts": spec.failure_policy.max_restarts + world.random.randint(0, 2)}
    ttl = world.random.choice([None, 20, 40])
    policy = spec.failure_policy.model_copy(update=more)
    world.server.edit_job(key, {"failure_policy": policy, "ttl_seconds_after_finished": ttl})
    return 0


def somebody_edits_what_pods_are_made_of(world: World, key: Key) -> int | None:
    """Or takes such an edit back."""
    workers = world.job(key).spec.workers
    image = world.random.choice([None, "team/one:1", "team/two:2"])
    world.server.edit_job(key, {"workers": workers.model_copy(update={"image": image})})
    return 0


def somebody_edits_its_status(world: World, key: Key) -> int | None:
    edit = world.random.choice(STATUS_EDITS)
    world.edit_status(key, dataclasses.replace(world.status(key), **edit))
    return 0


def somebody_suspends_it_for_a_while(world: World, key: Key) -> int | None:
    world.server.edit_job(key, {"suspend": True})
    uid = world.job(key).uid
    _later(world.random.uniform(0.1, 30), lambda: _resume(world, key, uid))
    return 0


def _resume(world: World, key: Key, uid: str) -> None:
    if key in world.server.jobs and world.job(key).uid == uid:
        world.server.edit_job(key, {"suspend": False})


def somebody_scales_it(world: World, key: Key) -> int | None:
    spec = world.job(key).spec
    least = spec.elasticity.min_replicas if spec.elasticity else 2 if spec.strategy.type == "Gossip" else 1
    replicas = world.random.randint(least, spec.elasticity.max_replicas if spec.elasticity else 4)
    world.server.edit_job(key, {"workers": spec.workers.model_copy(update={"replicas": replicas})})
    return 0


def somebody_makes_it_anew(world: World, key: Key) -> int | None:
    """Its pods are not gone yet, and have the names of the new ones."""
    world.make_anew(key, world.random.choice([0.0, 0.5, 3.0]))
    return 0


TROUBLES = (
    Trouble(a_rank_is_killed, 6, kills=True),
    Trouble(a_rank_raises, 3, kills=True),
    Trouble(a_container_is_killed, 3, kills=True),
    Trouble(a_pod_is_deleted, 3, kills=True),
    Trouble(a_pod_is_evicted, 3, kills=True),
    Trouble(a_pod_is_deleted_by_force, 2, kills=True),
    Trouble(a_pod_hangs_in_terminating, kills=True),
    Trouble(a_node_is_lost, 2, kills=True),
    Trouble(a_node_is_cut_off, 2),
    Trouble(an_agent_is_not_heard, 2),
    Trouble(a_pod_is_evicted_and_no_image_can_be_pulled, kills=True),
    Trouble(a_pod_is_evicted_and_finds_no_room_and_then_no_image, kills=True),
    Trouble(a_pod_is_evicted_and_the_next_is_refused, kills=True),
    Trouble(the_operator_dies, 3, kills=True),
    Trouble(the_operator_dies_at_a_call, 6, kills=True),
    Trouble(two_operators_are_at_work),
    Trouble(the_api_server_is_away, 2),
    Trouble(the_watch_is_cut, 2),
    Trouble(the_watch_repeats_itself),
    Trouble(somebody_edits_an_annotation),
    Trouble(somebody_edits_what_disturbs_nobody),
    Trouble(somebody_edits_what_pods_are_made_of, 2),
    Trouble(somebody_edits_its_status),
    Trouble(somebody_suspends_it_for_a_while, 2),
    Trouble(somebody_scales_it, 2),
    Trouble(somebody_makes_it_anew),
)
KINDS = {trouble.name for trouble in TROUBLES} | CALL_FAULTS
DEATHS = {trouble.name for trouble in TROUBLES if trouble.kills}
