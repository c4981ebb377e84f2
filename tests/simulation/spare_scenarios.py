"""Lives of a job that has a spare: who is lost is stood in for, and the operator may die at any call of it."""

from __future__ import annotations

import asyncio

from trainmaster.core.states.observed import Obstacle

from tests.builders import a_job
from tests.simulation.scenarios import Scenario, kill_rank, living, the_agent, the_pod
from tests.simulation.world import KEY, World

SPARE = a_job().with_workers(2).where(scheduling={"spares": 1})


async def _stands_by(world: World, slot: str = "worker-2") -> None:
    """Its agent is up, and the operator has heard it."""
    await world.until(lambda: world.agent(slot) is not None, f"the agent of {slot}")
    await world.step(35)


async def a_spare_is_not_needed(world: World) -> None:
    await _stands_by(world)
    world.check(len(living(world)) == 3, "there is no spare")
    kill_rank(world, "worker-1")


async def a_spare_steps_in_for_an_evicted_pod(world: World) -> None:
    await _stands_by(world)
    world.nodes.weather.obstacle = Obstacle("Unschedulable", "0/6 nodes are available: 6 Insufficient cpu.")
    world.nodes.evict(the_pod(world, "worker-1"))
    await world.step(100)  # there is no room for its next pod until they have trained
    world.check(world.status().substitutes == {"worker-1": 2}, "the spare does not train")
    world.nodes.weather.obstacle = None


async def a_spare_steps_in_where_the_group_meets(world: World) -> None:
    await _stands_by(world)
    world.nodes.evict(the_pod(world, "worker-0"))


async def a_spare_steps_in_for_a_pod_stuck_in_terminating(world: World) -> None:
    await _stands_by(world)
    pod = the_pod(world, "worker-1")
    world.nodes.stuck.add(pod.uid)
    world.server.delete_pod(pod.name, pod.uid)


async def a_spare_steps_in_for_a_lost_node(world: World) -> None:
    await _stands_by(world)
    world.nodes.lose(the_pod(world, "worker-1").node, seconds=60, dies=True)


async def a_spare_steps_in_for_a_node_that_nobody_gives_up(world: World) -> None:
    """It has no power, and Kubernetes takes its time: only the silence of its agent tells of it."""
    await _stands_by(world)
    agent = the_agent(world, "worker-1")
    agent.silent = True
    agent.vanish()


async def the_spare_is_evicted(world: World) -> None:
    await _stands_by(world)
    world.nodes.evict(the_pod(world, "worker-2"))
    await asyncio.sleep(3)
    world.check(len(living(world)) == 3, "the spare was not replaced")


async def the_spare_goes_with_the_worker(world: World) -> None:
    await _stands_by(world)
    for slot in ("worker-1", "worker-2"):
        world.nodes.evict(the_pod(world, slot))


async def one_after_the_other_is_evicted(world: World) -> None:
    await _stands_by(world)
    world.nodes.evict(the_pod(world, "worker-1"))
    await asyncio.sleep(4)
    world.nodes.evict(the_pod(world, "worker-2"))
    await asyncio.sleep(4)
    world.nodes.evict(the_pod(world, "worker-0"))


async def a_worker_is_late_and_the_spare_is_not(world: World) -> None:
    """Its node went before its container was up, and is back before anybody gave it up."""
    await world.until(lambda: world.pod("worker-1") is not None and the_pod(world, "worker-1").node != "", "a node")
    world.nodes.lose(the_pod(world, "worker-1").node, seconds=14, dies=True)
    await world.until(lambda: world.status().substitutes == {"worker-1": 2} or world.status().finished, "a stand-in")


async def a_silent_spare_steps_in(world: World) -> None:
    """It died a moment before it is needed, and nobody knows yet."""
    await _stands_by(world)
    the_agent(world, "worker-2").silent = True
    world.nodes.evict(the_pod(world, "worker-1"))
    await asyncio.sleep(3)
    world.nodes.evict(the_pod(world, "worker-2"))


async def a_job_with_a_spare_is_suspended_and_scaled(world: World) -> None:
    await _stands_by(world)
    world.nodes.evict(the_pod(world, "worker-0"))
    await asyncio.sleep(2)
    world.server.edit_job(KEY, {"suspend": True})
    await world.phase("Suspended")
    await asyncio.sleep(5)
    world.check(not living(world), "a suspended job has replicas")
    workers = world.job().spec.workers
    world.server.edit_job(KEY, {"suspend": False, "workers": workers.model_copy(update={"replicas": 3})})


SPARES = (
    Scenario(a_spare_is_not_needed, counted=("Signal",), restarts=(1,), job=SPARE, writes=16),
    Scenario(a_spare_steps_in_for_an_evicted_pod, restarts=(1,), job=SPARE, writes=16),
    Scenario(a_spare_steps_in_where_the_group_meets, restarts=(1,), job=SPARE, writes=16),
    Scenario(a_spare_steps_in_for_a_pod_stuck_in_terminating, restarts=(1,), job=SPARE, writes=16),
    Scenario(a_spare_steps_in_for_a_lost_node, restarts=(1,), job=SPARE, seconds=33, writes=16),
    Scenario(
        a_spare_steps_in_for_a_node_that_nobody_gives_up, counted=("PeerLost",), restarts=(1,), job=SPARE, seconds=95
    ),
    Scenario(the_spare_is_evicted, job=SPARE, writes=16),
    Scenario(the_spare_goes_with_the_worker, restarts=(1, 2), job=SPARE, writes=18),
    Scenario(one_after_the_other_is_evicted, restarts=(2, 3), job=SPARE, seconds=25, writes=30),
    Scenario(a_worker_is_late_and_the_spare_is_not, job=SPARE, seconds=33, writes=20),
    Scenario(a_silent_spare_steps_in, restarts=(1, 2), job=SPARE, seconds=25, writes=24),
    Scenario(a_job_with_a_spare_is_suspended_and_scaled, restarts=(0, 1), job=SPARE, seconds=30, writes=30),
)
