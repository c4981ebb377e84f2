"""Lives of a job whose first worker leads: a chief of TensorFlow with a worker and a server, which never end."""

from __future__ import annotations

import asyncio

from tests.builders import a_job
from tests.platforms.training import Plan
from tests.simulation.scenarios import Scenario, kill_rank, living, the_pod
from tests.simulation.world import World

LED = (
    a_job()
    .with_workers(2)
    .where(
        strategy={"type": "ParameterServer"},
        training={"command": ["python", "train.py"], "framework": "TensorFlow"},
        parameterServers={"replicas": 1},
    )
)
PLAN = Plan(led=True)


async def the_chief_ends_and_nobody_serves_on(world: World) -> None:
    await world.phase("Succeeded")
    world.check("worker-0, which leads" in (world.status().message or ""), f"{world.status().message}")
    await asyncio.sleep(3)
    world.check(not living(world), "somebody serves on")


async def the_chief_fails_while_servers_live(world: World) -> None:
    await world.step(35)
    kill_rank(world, "worker-0")


async def a_server_dies(world: World) -> None:
    await world.step(35)
    kill_rank(world, "parameterServer-0")


async def the_chiefs_pod_is_evicted(world: World) -> None:
    await world.step(35)
    world.nodes.evict(the_pod(world, "worker-0"))


FRAMEWORKS = (
    Scenario(the_chief_ends_and_nobody_serves_on, job=LED, plan=PLAN),
    Scenario(the_chief_fails_while_servers_live, counted=("Signal",), restarts=(1,), job=LED, plan=PLAN),
    Scenario(a_server_dies, counted=("Signal",), restarts=(1,), job=LED, plan=PLAN, sweep=False),
    Scenario(the_chiefs_pod_is_evicted, restarts=(1,), job=LED, plan=PLAN, seconds=25, writes=20, sweep=False),
)
