"""More lives, of two kinds: what people do to a job, and a control plane that goes away or gets another leader."""

from __future__ import annotations

import asyncio
import dataclasses

from trainmaster.core.states.observed import Obstacle
from trainmaster.wire.messages import ErrorReport
from trainmaster_trainer.agent.supervise import RankEnded

from tests.builders import a_job
from tests.platforms.training import Plan
from tests.simulation.framework_scenarios import FRAMEWORKS
from tests.simulation.node_scenarios import NODES
from tests.simulation.scenarios import SCENARIOS, Scenario, kill_rank, living, the_pod
from tests.simulation.spare_scenarios import SPARES
from tests.simulation.world import KEY, World

GONE = ""  # the phase of a job that is no more
TEN_MINUTES = 600.0
LONG = Plan(steps=7000)  # 700 s
CONVERGED_SECONDS = 10.0


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()


def true_step(world: World) -> int:
    """How far training really is."""
    return max((group.step for group in world.jobs[KEY].groups.values()), default=0)


# What people do.


async def deleted_before_a_pod_is_up(world: World) -> None:
    await world.until(lambda: bool(world.server.pods), "a pod")
    world.delete()


async def deleted_in_mid_start(world: World) -> None:
    await world.phase("Starting")
    world.delete()


async def deleted_while_it_trains(world: World) -> None:
    await world.step(35)
    world.delete()


async def deleted_and_made_anew(world: World) -> None:
    await world.step(35)
    world.delete()
    world.submit(a_job().with_workers(2).with_metadata(uid="job-2"))
    await asyncio.sleep(1)  # the scenario's clock is the new job's


async def it_goes_after_its_time(world: World) -> None:
    await world.phase("Succeeded")
    await world.until(lambda: KEY not in world.server.jobs, "the job to go")


async def suspended_from_the_beginning(world: World) -> None:
    await world.phase("Suspended")
    await asyncio.sleep(10)
    world.check(not living(world), "a suspended job has replicas")
    world.server.edit_job(KEY, {"suspend": False})


async def suspended_in_mid_start(world: World) -> None:
    await world.until(lambda: bool(world.nodes.agents), "an agent")
    world.server.edit_job(KEY, {"suspend": True})
    await world.phase("Suspended")
    world.server.edit_job(KEY, {"suspend": False})


async def scaled_in_mid_start(world: World) -> None:
    await world.until(lambda: bool(world.nodes.agents), "an agent")
    scale(world, 3)


async def scaled_up_down_and_up_at_once(world: World) -> None:
    await world.step(35)
    for replicas in (4, 1, 3):
        scale(world, replicas)
    await asyncio.sleep(5)
    world.check(len(living(world)) == 3, "not three workers")


def scale(world: World, replicas: int) -> None:
    """A user changes the number of workers."""
    workers = world.job().spec.workers
    world.server.edit_job(KEY, {"workers": workers.model_copy(update={"replicas": replicas})})


async def edited_all_the_time(world: World) -> None:
    for step in range(1, 100):
        await world.step(step)
        world.server.edit_job(KEY, {})
        if step == 35:
            kill_rank(world, "worker-1")


async def edited_while_it_starts(world: World) -> None:
    for _ in range(120):
        await asyncio.sleep(0.03)
        world.server.edit_job(KEY, {})


async def its_deadline_comes(world: World) -> None:
    pass


# What dies.


async def a_rank_dies_before_its_first_step(world: World) -> None:
    await world.until(lambda: bool((agent := world.agent("worker-1")) and agent.state.live), "ranks")
    kill_rank(world, "worker-1")


async def a_rank_says_that_the_job_is_wrong(world: World) -> None:
    await world.step(5)
    error = ErrorReport("ConfigurationError", "arguments.hidden: -1 is no size; name a positive one", "digits.py:3")
    kill_rank(world, "worker-0", RankEnded(0, 0, exit_code=78, error=error))


async def all_ranks_die_at_once(world: World) -> None:
    await world.step(35)
    for slot in ("worker-0", "worker-1", "worker-2"):
        kill_rank(world, slot)


async def a_node_is_drained(world: World) -> None:
    await world.step(35)
    for pod in living(world):
        world.nodes.evict(pod)


async def a_replacement_is_evicted_too(world: World) -> None:
    await world.step(35)
    world.nodes.evict(the_pod(world, "worker-1"))
    await world.until(lambda: bool((pod := world.pod("worker-1")) and pod.incarnation), "the replacement")
    world.nodes.evict(the_pod(world, "worker-1"))


async def too_few_find_a_place_for_a_while(world: World) -> None:
    """An elastic group goes on without one of three, not without two."""
    await world.step(35)
    world.nodes.weather.obstacle = Obstacle("Unschedulable", "0/6 nodes are available: 6 Insufficient cpu.")
    for slot in ("worker-1", "worker-2"):
        world.nodes.evict(the_pod(world, slot))
    await asyncio.sleep(70)
    world.nodes.weather.obstacle = None


async def the_image_is_no_name(world: World) -> None:
    world.nodes.weather.obstacle = Obstacle("InvalidImageName", "couldn't parse image reference")


# The control plane.


async def the_api_server_is_away_at_the_start(world: World) -> None:
    world.down_until = now() + 20


async def the_api_server_and_etcd_are_away_for_ten_minutes(world: World) -> None:
    await world.step(35)
    world.down_until = now() + TEN_MINUTES
    await asyncio.sleep(TEN_MINUTES)
    world.check(true_step(world) >= 6000, "workers were disturbed")
    await asyncio.sleep(CONVERGED_SECONDS)
    progress = world.status().progress
    world.check(progress is not None and progress.step >= 6000, f"not converged: {world.status()}")


async def a_rank_dies_while_the_api_server_is_away_for_ten_minutes(world: World) -> None:
    await world.step(35)
    world.down_until = now() + TEN_MINUTES
    kill_rank(world, "worker-1")
    await asyncio.sleep(TEN_MINUTES + CONVERGED_SECONDS)
    world.check(world.status().phase == "Running", f"not converged: {world.status()}")


async def the_operator_is_away_for_ten_minutes(world: World) -> None:
    await world.step(35)
    world.faults = dataclasses.replace(world.faults, restart_seconds=TEN_MINUTES)
    world.kill_operator()
    await asyncio.sleep(TEN_MINUTES + CONVERGED_SECONDS)
    progress = world.status().progress
    world.check(progress is not None and progress.step >= 6000, f"not converged: {world.status()}")


async def two_operators_lead_in_turn(world: World) -> None:
    """The lease changes hands every second and a half; the one that had it is ended (cluster/lease.py)."""
    for turn in range(8):
        await asyncio.sleep(1.5)
        world.hand_over()
        if turn == 3:
            kill_rank(world, "worker-1")


async def the_leader_dies_whenever_a_rank_does(world: World) -> None:
    for step in (20, 40, 60):
        await world.step(step)
        kill_rank(world, "worker-0")
        await asyncio.sleep(0.03)
        world.hand_over()


three = a_job().with_workers(3)
MORE = (
    Scenario(deleted_before_a_pod_is_up, phase=GONE),
    Scenario(deleted_in_mid_start, phase=GONE),
    Scenario(deleted_while_it_trains, phase=GONE),
    Scenario(deleted_and_made_anew, writes=20),
    Scenario(it_goes_after_its_time, phase=GONE, job=a_job().with_workers(2).where(ttlSecondsAfterFinished=5)),
    Scenario(suspended_from_the_beginning, job=a_job().with_workers(2).where(suspend=True)),
    Scenario(suspended_in_mid_start),
    Scenario(scaled_in_mid_start),
    Scenario(scaled_up_down_and_up_at_once, writes=20),
    Scenario(edited_all_the_time, counted=("Signal",), restarts=(1,), writes=110, seconds=25),
    Scenario(edited_while_it_starts, seconds=25, writes=20),
    Scenario(its_deadline_comes, phase="Failed", seconds=7, job=a_job().with_workers(2).where(activeDeadlineSeconds=6)),
    Scenario(a_rank_dies_before_its_first_step, counted=("Signal",), restarts=(1,)),
    Scenario(a_rank_says_that_the_job_is_wrong, phase="Failed", counted=("Configuration",), restarts=(0, 1)),
    Scenario(all_ranks_die_at_once, counted=("Signal",), restarts=(1,), job=three),
    Scenario(a_node_is_drained, restarts=(1,), job=three),
    Scenario(a_replacement_is_evicted_too, restarts=(1, 2)),
    Scenario(
        too_few_find_a_place_for_a_while,
        restarts=(1, 2),
        seconds=95,
        writes=40,
        job=three.where(elasticity={"minReplicas": 2, "maxReplicas": 3}),
    ),
    Scenario(the_image_is_no_name, phase="Failed"),
    Scenario(the_api_server_is_away_at_the_start, seconds=40),
    Scenario(the_api_server_and_etcd_are_away_for_ten_minutes, plan=LONG, seconds=720, writes=30, sweep=False),
    Scenario(
        a_rank_dies_while_the_api_server_is_away_for_ten_minutes,
        plan=LONG,
        counted=("Signal",),
        restarts=(1,),
        seconds=1400,
        writes=100,
        sweep=False,
    ),
    Scenario(the_operator_is_away_for_ten_minutes, plan=LONG, seconds=720, writes=40, sweep=False),
    Scenario(two_operators_lead_in_turn, counted=("Signal",), restarts=(1,), seconds=20, writes=30),
    Scenario(
        the_leader_dies_whenever_a_rank_does,
        counted=("Signal", "Signal", "Signal"),
        restarts=(3,),
        seconds=25,
        writes=30,
    ),
)
ALL = SCENARIOS + MORE + SPARES + NODES + FRAMEWORKS
