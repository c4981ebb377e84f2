"""A group that goes on without a worker that finds no place, and grows again; the operator dies at any call."""

from __future__ import annotations

import asyncio

from trainmaster.core.states.observed import Obstacle

from tests.builders import a_job
from tests.simulation.oracle import live, problems, tell
from tests.simulation.scenarios import Scenario, the_pod
from tests.simulation.sweeps import Moments, both_sweeps
from tests.simulation.world import World

SEED = 1


async def a_worker_finds_no_place_for_a_while(world: World) -> None:
    await world.step(35)
    world.nodes.weather.obstacle = Obstacle("Unschedulable", "0/6 nodes are available: 6 Insufficient cpu.")
    world.nodes.evict(the_pod(world, "worker-1"))
    await world.until(lambda: world.status().absent == ("worker-1",), "the group to go on without it")
    await world.phase("Running")
    await asyncio.sleep(1)
    world.nodes.weather.obstacle = None
    await world.until(lambda: world.status().phase == "Resizing" or world.status().attempt == 3, "the group to grow")
    world.check(world.status().absent == (), "it grew, and somebody is still missing")


SCENARIO = Scenario(
    a_worker_finds_no_place_for_a_while,
    restarts=(1,),
    seconds=100,
    writes=40,
    job=a_job().with_workers(3).where(elasticity={"minReplicas": 2, "maxReplicas": 3}),
)


@both_sweeps
def test_it_shrinks_and_grows_and_costs_nothing_whenever_the_operator_dies(moments: Moments) -> None:
    undisturbed = live(SCENARIO, SEED)
    assert not problems(SCENARIO, undisturbed), tell(SCENARIO, undisturbed, problems(SCENARIO, undisturbed))
    assert len(undisturbed.status().restarts) == 1
    for number, way in moments(undisturbed.calls):
        world = live(SCENARIO, SEED, crashes={number: way})
        found = problems(SCENARIO, world)
        assert not found, f"{way} call {number}: {tell(SCENARIO, world, found)}"
