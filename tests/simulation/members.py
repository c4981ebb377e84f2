"""Lives of jobs whose members come and go one by one, and the end that each must come to."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.builders import JobBuilder, a_job
from tests.platforms.crew import Crew
from tests.simulation.scenarios import Scenario, an_error, kill_rank, the_pod
from tests.simulation.world import KEY, World

SERVER, OTHER_SERVER = "parameterServer-0", "parameterServer-1"


def with_servers(servers: int = 2) -> JobBuilder:
    """Two workers of a task, whose ranks say what they are at, and so many servers."""
    job = a_job().where(strategy={"type": "ParameterServer"}, parameterServers={"replicas": servers})
    return job.with_workers(2)


def gossiping(workers: int = 3) -> JobBuilder:
    """Nobody in the middle, and a script, whose ranks say nothing."""
    script = {"command": ["python", "train.py"]}
    return a_job().where(strategy={"type": "Gossip"}, training=script).with_workers(workers)


@dataclass(frozen=True)
class Lonely(Scenario):
    """`undisturbed`: who must have been started once, whatever happened to the others."""

    job: JobBuilder = field(default_factory=with_servers)
    attempts: tuple[int, ...] = (1,)
    undisturbed: tuple[str, ...] = ("worker-0", SERVER)
    lost: tuple[int, ...] = (0,)  # steps that were trained in vain, as the ledger may tell
    all_return: bool = True  # before the others have done all the work


def starts(world: World) -> list[str]:
    """Every start of any member, over all attempts."""
    return [slot for crew in world.jobs[KEY].groups.values() if isinstance(crew, Crew) for slot in crew.joined]


async def nothing_happens(world: World) -> None:
    pass


async def a_worker_dies(world: World) -> None:
    await world.step(35)
    kill_rank(world, "worker-1")


async def a_worker_dies_twice(world: World) -> None:
    await a_worker_dies(world)
    await world.step(60)
    await world.until(lambda: (agent := world.agent("worker-1")) is not None and agent.state.start == 1, "its return")
    kill_rank(world, "worker-1")


async def a_server_dies(world: World) -> None:
    await world.step(35)
    kill_rank(world, OTHER_SERVER)


async def two_servers_die(world: World) -> None:
    await world.step(35)
    kill_rank(world, OTHER_SERVER)
    kill_rank(world, "parameterServer-2")


async def a_worker_and_a_server_die(world: World) -> None:
    await world.step(35)
    kill_rank(world, OTHER_SERVER)
    kill_rank(world, "worker-1")


async def two_workers_die_of_the_same(world: World) -> None:
    await world.step(35)
    kill_rank(world, "worker-0", an_error("the service does not answer"))
    kill_rank(world, "worker-1", an_error("the service does not answer"))


async def a_workers_pod_is_deleted(world: World) -> None:
    await world.step(35)
    pod = the_pod(world, "worker-1")
    world.server.delete_pod(pod.name, pod.uid)


async def a_servers_pod_is_deleted(world: World) -> None:
    await world.step(35)
    pod = the_pod(world, OTHER_SERVER)
    world.server.delete_pod(pod.name, pod.uid)


async def the_first_workers_pod_is_evicted(world: World) -> None:
    await world.step(35)
    world.nodes.evict(the_pod(world, "worker-0"))


async def a_pod_is_taken_by_force(world: World) -> None:
    await world.step(35)
    world.nodes.remove_at_once(the_pod(world, "worker-1"))


async def an_agent_is_killed_for_memory(world: World) -> None:
    await world.step(35)
    world.nodes.kill_agent(the_pod(world, "worker-1"))


async def a_node_is_cut_off_and_comes_back(world: World) -> None:
    await world.step(35)
    world.nodes.lose(the_pod(world, "worker-1").node, seconds=60, dies=False)


async def all_servers_are_lost(world: World) -> None:
    await world.step(35)
    for slot in (SERVER, OTHER_SERVER):
        pod = the_pod(world, slot)
        world.nodes.remove_at_once(pod)


async def the_only_server_dies(world: World) -> None:
    await world.step(35)
    kill_rank(world, SERVER)


async def the_same_error_comes_twice_while_others_train_on(world: World) -> None:
    await world.step(35)
    kill_rank(world, "worker-1", an_error("no such word"))
    await world.step(60)
    await world.until(lambda: (agent := world.agent("worker-1")) is not None and agent.state.start == 1, "its return")
    kill_rank(world, "worker-1", an_error("no such word"))


async def a_worker_is_added(world: World) -> None:
    await world.step(35)
    scale(world, 3)


async def a_worker_is_sent_away(world: World) -> None:
    await world.step(35)
    scale(world, 1)


def scale(world: World, workers: int) -> None:
    """As `kubectl scale` does."""
    world.server.edit_job(KEY, {"workers": world.job().spec.workers.model_copy(update={"replicas": workers})})


LONELY = (
    Lonely(nothing_happens, undisturbed=("worker-0", "worker-1", SERVER, OTHER_SERVER)),
    Lonely(a_worker_dies, counted=("Signal",), restarts=(1,), undisturbed=("worker-0", SERVER, OTHER_SERVER)),
    Lonely(a_worker_dies_twice, counted=("Signal", "Signal"), restarts=(2,), writes=14),
    Lonely(a_server_dies, counted=("Signal",), restarts=(1,), undisturbed=("worker-0", "worker-1", SERVER)),
    Lonely(
        two_servers_die,
        counted=("Signal",),
        restarts=(1,),
        job=with_servers(3),
        undisturbed=("worker-0", "worker-1", SERVER),
        lost=(5,),
        writes=14,
    ),
    Lonely(a_worker_and_a_server_die, counted=("Signal",), restarts=(1,), writes=14),
    Lonely(
        two_workers_die_of_the_same,
        counted=("PythonError",),
        restarts=(1,),
        job=gossiping(),
        undisturbed=("worker-2",),
        writes=14,
    ),
    Lonely(a_workers_pod_is_deleted, restarts=(1,), writes=14),
    Lonely(a_servers_pod_is_deleted, restarts=(1,), writes=14, undisturbed=("worker-0", "worker-1", SERVER)),
    Lonely(the_first_workers_pod_is_evicted, restarts=(1,), writes=14, undisturbed=("worker-1", SERVER)),
    Lonely(a_pod_is_taken_by_force, restarts=(1,), writes=14),
    Lonely(an_agent_is_killed_for_memory, counted=("OutOfMemory",), restarts=(1,), writes=14),
    Lonely(
        a_node_is_cut_off_and_comes_back,
        restarts=(1, 2, 3),
        writes=18,
        seconds=40,
        undisturbed=(),
        attempts=(1, 2),
        all_return=False,
    ),
    Lonely(
        all_servers_are_lost,
        restarts=(1, 2),
        attempts=(2,),
        undisturbed=(),
        writes=18,
        seconds=30,
        lost=tuple(range(8)),  # of pods that are gone the last words are known, which may be two seconds old
    ),
    Lonely(
        the_only_server_dies,
        counted=("Signal",),
        restarts=(1,),
        attempts=(2,),
        undisturbed=(),
        job=with_servers(1),
        lost=(5,),
        writes=16,
        seconds=22,
    ),
    Lonely(
        the_same_error_comes_twice_while_others_train_on,
        counted=("PythonError", "PythonError"),
        restarts=(2,),
        writes=14,
    ),
    Lonely(a_worker_is_added, undisturbed=("worker-0", "worker-1", "worker-2", SERVER), writes=14),
    Lonely(a_worker_is_sent_away, writes=14),
    Lonely(a_worker_dies, counted=("Signal",), restarts=(1,), job=gossiping(), undisturbed=("worker-0", "worker-2")),
)
