"""Lives of a job with trouble in them: scripts for the simulated world, and the end that each must come to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from trainmaster.core.states.observed import Obstacle, Replica
from trainmaster.wire.messages import ErrorReport
from trainmaster_trainer.agent.supervise import RankEnded

from tests.builders import JobBuilder, a_job
from tests.platforms.agents import SimulatedAgent
from tests.platforms.training import Plan
from tests.simulation.world import KEY, World

Script = Callable[[World], Awaitable[None]]
KILLED = RankEnded(0, 0, signal="SIGKILL")


@dataclass(frozen=True)
class Scenario:
    """A script, and how it must end."""

    script: Script
    phase: str = "Succeeded"
    counted: tuple[str, ...] = ()  # the classes of the ledger's lines that cost budget
    restarts: tuple[int, ...] = (0,)  # each of these counts is right, depending on who was seen first
    seconds: float = 17.0  # it takes no longer than this, where the operator lives through it; training takes ten
    writes: int = 12  # of the status
    job: JobBuilder = field(default_factory=lambda: a_job().with_workers(2))
    plan: Plan | None = None
    sweep: bool = True  # dying at each of its calls is worth the time

    @property
    def name(self) -> str:
        """As in test reports."""
        return self.script.__name__


def kill_rank(world: World, slot: str, how: RankEnded = KILLED) -> None:
    """The first living rank of this agent dies."""
    agent = world.agent(slot)
    if agent and agent.group and agent.state.live:
        agent.group.kill(agent.pod.uid, min(agent.state.live), how)


def living(world: World) -> list[Replica]:
    """All pods that may train."""
    return [pod for pod in world.server.pods_of(KEY) if pod.alive]


def an_error(text: str) -> RankEnded:
    """A rank raises."""
    return RankEnded(0, 0, exit_code=1, error=ErrorReport("ValueError", text, "train.py:7 in step"))


def the_pod(world: World, slot: str) -> Replica:
    """Its pod, which is there."""
    pod = world.pod(slot)
    assert pod, slot
    return pod


def the_agent(world: World, slot: str) -> SimulatedAgent:
    """Its agent, which is up."""
    agent = world.agent(slot)
    assert agent, slot
    return agent


async def undisturbed(world: World) -> None:
    pass


async def a_rank_dies(world: World) -> None:
    await world.step(35)
    kill_rank(world, "worker-1")


async def the_first_rank_dies_twice(world: World) -> None:
    await world.step(35)
    kill_rank(world, "worker-0")
    await world.step(60)
    kill_rank(world, "worker-0")


async def a_pod_is_deleted(world: World) -> None:
    await world.step(35)
    pod = the_pod(world, "worker-1")
    world.server.delete_pod(pod.name, pod.uid)


async def the_first_pod_is_evicted(world: World) -> None:
    await world.step(35)
    world.nodes.evict(the_pod(world, "worker-0"))


async def a_pod_is_deleted_by_force(world: World) -> None:
    await world.step(35)
    world.nodes.remove_at_once(the_pod(world, "worker-1"))


async def a_pod_hangs_in_terminating(world: World) -> None:
    await world.step(35)
    pod = the_pod(world, "worker-1")
    world.nodes.stuck.add(pod.uid)
    world.server.delete_pod(pod.name, pod.uid)


async def a_node_is_lost(world: World) -> None:
    await world.step(35)
    world.nodes.lose(the_pod(world, "worker-1").node, seconds=60, dies=True)


async def a_node_is_cut_off(world: World) -> None:
    await world.step(35)
    world.nodes.lose(the_pod(world, "worker-0").node, seconds=60, dies=False)


async def two_pods_are_lost_at_once(world: World) -> None:
    await world.step(35)
    for slot in ("worker-0", "worker-2"):
        world.nodes.evict(the_pod(world, slot))


async def a_container_is_killed(world: World) -> None:
    await world.step(35)
    world.nodes.kill_agent(the_pod(world, "worker-1"))


async def a_pod_is_lost_before_the_start(world: World) -> None:
    await world.until(lambda: world.agent("worker-0") is not None, "an agent")
    world.nodes.evict(the_pod(world, "worker-0"))


async def suspended_and_resumed(world: World) -> None:
    await world.step(35)
    world.server.edit_job(KEY, {"suspend": True})
    await world.phase("Suspended")
    await asyncio.sleep(10)
    world.check(not living(world), "a suspended job has replicas")
    world.server.edit_job(KEY, {"suspend": False})


async def scaled_up_and_down(world: World) -> None:
    workers = world.job().spec.workers
    for step, replicas in ((20, 3), (60, 1)):
        await world.step(step)
        world.server.edit_job(KEY, {"workers": workers.model_copy(update={"replicas": replicas})})
    await asyncio.sleep(3)
    world.check(len(living(world)) == 1, "surplus replicas are kept")


async def a_pod_is_lost_as_all_finish(world: World) -> None:
    await world.step(100)
    pod = world.pod("worker-1")
    if pod and pod.alive:
        world.nodes.evict(pod)


async def a_worker_that_is_through_loses_its_pod(world: World) -> None:
    """Once it is in the status, not even an operator that never heard of it has it train again."""
    await world.until(lambda: bool(world.status().done) or world.status().finished, "one that is through")
    for slot in world.status().done:
        pod = the_pod(world, slot)
        world.server.delete_pod(pod.name, pod.uid)


async def the_budget_runs_out(world: World) -> None:
    for step in (20, 40, 60):
        await world.step(step)
        kill_rank(world, "worker-1")


async def progress_refills_the_budget(world: World) -> None:
    """Ten checkpoints past the first failure it has left the budget."""
    for step in (20, 80):
        await world.step(step)
        kill_rank(world, "worker-1")


async def the_same_error_comes_again(world: World) -> None:
    for attempt in (1, 2):
        await world.until(lambda n=attempt: world.status().attempt == n, "the attempt")  # type: ignore[misc]
        await world.until(lambda: _trains(world), "training")
        kill_rank(world, "worker-1", an_error("nan in the loss"))


async def the_image_is_missing_for_a_while(world: World) -> None:
    await asyncio.sleep(20)
    world.nodes.weather.obstacle = None


async def the_image_never_comes(world: World) -> None:
    pass


async def a_cause_is_heard_after_its_echo(world: World) -> None:
    await world.step(35)
    agent = the_agent(world, "worker-1")
    agent.silent = True
    kill_rank(world, "worker-1")
    await asyncio.sleep(3)
    agent.silent = False


async def a_lost_worker_is_scaled_away_after_its_echo(world: World) -> None:
    """Nobody will ever tell what the survivor's error was an echo of."""
    await world.step(35)
    agent = the_agent(world, "worker-1")
    agent.silent = True
    agent.vanish()
    await world.phase("Restarting")
    workers = world.job().spec.workers
    world.server.edit_job(KEY, {"workers": workers.model_copy(update={"replicas": 1})})


async def an_eviction_is_seen_after_its_echo(world: World) -> None:
    await world.step(35)
    watching = world.operator
    if watching:
        watching.view.cut = True
    world.nodes.evict(the_pod(world, "worker-1"))
    await asyncio.sleep(3)
    if watching:
        watching.view.relist()


async def two_operators_for_a_while(world: World) -> None:
    await world.step(35)
    world.second_operator(3)
    await asyncio.sleep(1)
    kill_rank(world, "worker-1")


async def two_operators_see_an_eviction(world: World) -> None:
    await world.step(35)
    world.second_operator(6)
    world.nodes.evict(the_pod(world, "worker-1"))


async def the_api_server_is_away_when_a_rank_dies(world: World) -> None:
    await world.step(35)
    world.down_until = asyncio.get_running_loop().time() + 20
    kill_rank(world, "worker-1")


async def the_operator_is_away_when_a_rank_dies(world: World) -> None:
    await world.step(35)
    world.kill_operator()
    kill_rank(world, "worker-1")


async def the_operator_restarts_in_mid_training(world: World) -> None:
    await world.step(35)
    world.kill_operator()


def _trains(world: World) -> bool:
    groups = world.jobs[KEY].groups.values()
    return any(g.began is not None and not g.broken and g.roster.attempt == world.status().attempt for g in groups)


def with_missing_image(script: Script) -> Script:
    """No image can be pulled from the beginning on."""

    async def blocked(world: World) -> None:
        world.nodes.weather.obstacle = Obstacle("ErrImagePull", "no such image")
        await script(world)

    blocked.__name__ = script.__name__
    return blocked


three = a_job().with_workers(3)
SCENARIOS = (
    Scenario(undisturbed),
    Scenario(undisturbed, job=a_job().with_workers(3, gpus=2)),
    Scenario(a_rank_dies, counted=("Signal",), restarts=(1,)),
    Scenario(the_first_rank_dies_twice, counted=("Signal", "Signal"), restarts=(2,)),
    Scenario(a_pod_is_deleted, restarts=(1,)),
    Scenario(the_first_pod_is_evicted, restarts=(1,)),
    Scenario(a_pod_is_deleted_by_force, restarts=(1,)),
    Scenario(a_pod_hangs_in_terminating, restarts=(1,)),
    Scenario(a_node_is_lost, restarts=(1,), seconds=33),
    Scenario(a_node_is_cut_off, restarts=(1,), seconds=33),
    Scenario(two_pods_are_lost_at_once, restarts=(1,), job=three),
    Scenario(a_container_is_killed, counted=("OutOfMemory",), restarts=(1,)),
    Scenario(a_pod_is_lost_before_the_start, restarts=(0, 1)),
    Scenario(suspended_and_resumed),
    Scenario(scaled_up_and_down),
    Scenario(a_pod_is_lost_as_all_finish, restarts=(0, 1)),
    Scenario(a_worker_that_is_through_loses_its_pod, plan=Plan(farewell_seconds=60), seconds=77),
    Scenario(
        the_budget_runs_out,
        phase="Failed",
        counted=("Signal", "Signal", "Signal"),
        restarts=(2,),
        job=a_job().with_workers(2).with_failure_policy(maxRestarts=2),
    ),
    Scenario(
        progress_refills_the_budget,
        counted=("Signal", "Signal"),
        restarts=(2,),
        seconds=20,
        job=a_job().with_workers(2).with_failure_policy(maxRestarts=1),
        plan=Plan(every=5),
    ),
    Scenario(the_same_error_comes_again, phase="Failed", counted=("PythonError", "PythonError"), restarts=(1, 2)),
    Scenario(with_missing_image(the_image_is_missing_for_a_while), seconds=36),
    Scenario(
        with_missing_image(the_image_never_comes),
        phase="Failed",
        seconds=35,
        job=a_job().with_workers(2).with_failure_policy(startSeconds=30),
    ),
    Scenario(a_cause_is_heard_after_its_echo, counted=("Signal",), restarts=(1,)),
    Scenario(a_lost_worker_is_scaled_away_after_its_echo, restarts=(1,), seconds=40, writes=16),
    Scenario(
        an_eviction_is_seen_after_its_echo,
        restarts=(1,),
        job=a_job().with_workers(2).with_failure_policy(maxRestarts=0),
    ),
    Scenario(two_operators_for_a_while, counted=("Signal",), restarts=(1,), writes=30),
    Scenario(two_operators_see_an_eviction, restarts=(1, 2, 3), seconds=25, writes=40),
    Scenario(the_api_server_is_away_when_a_rank_dies, counted=("Signal",), restarts=(1,), seconds=42),
    Scenario(the_operator_is_away_when_a_rank_dies, counted=("Signal",), restarts=(1,), seconds=20),
    Scenario(the_operator_restarts_in_mid_training),
)
