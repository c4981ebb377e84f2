"""Lives on nodes that say nothing more, and that the cluster gives up late or never.

A new operator gives everybody the same time to speak, so where one dies as well it takes twice as long.
"""

from __future__ import annotations

from tests.builders import a_job
from tests.simulation.scenarios import Scenario, the_pod
from tests.simulation.world import World

NEVER = 1e6


async def _falls_silent(world: World, dies: bool = True, marked: float = 8.0, slot: str = "worker-1") -> None:
    world.plan.silence_seconds = NEVER  # a collective that waits for ever
    world.nodes.weather.spread = True
    world.nodes.weather.give_up_node = NEVER
    world.nodes.weather.mark_node = marked
    await world.step(35)
    world.nodes.lose(the_pod(world, slot).node, seconds=600, dies=dies)


async def a_node_dies_and_is_marked(world: World) -> None:
    await _falls_silent(world)


async def a_node_dies_and_nobody_says_so(world: World) -> None:
    await _falls_silent(world, marked=NEVER)
    await world.phase("Restarting")
    avoided = {node.node for node in world.status().avoided_nodes}
    world.check(avoided == world.nodes.lost, "the next pod may be sent to the node that died")


async def a_node_is_cut_off_and_nobody_says_so(world: World) -> None:
    await _falls_silent(world, dies=False, marked=NEVER)


async def the_only_node_dies(world: World) -> None:
    await _falls_silent(world, slot="worker-0")


NODES = (
    Scenario(a_node_dies_and_is_marked, restarts=(1,), seconds=66),
    Scenario(a_node_dies_and_nobody_says_so, restarts=(1,), seconds=66),
    Scenario(a_node_is_cut_off_and_nobody_says_so, restarts=(1,), seconds=66),
    Scenario(the_only_node_dies, restarts=(1,), seconds=66, job=a_job().with_workers(1)),
)
