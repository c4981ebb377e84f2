"""A small job's pod is made soon beside any number of large jobs: the requests before it are counted."""

# ruff: noqa: D102  a platform's methods are explained by the protocol

import asyncio
from dataclasses import dataclass, field

import pytest
from trainmaster import loop
from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cluster.throttle import Throttle
from trainmaster.core.states.actions import Action, CreateReplica
from trainmaster.core.states.observed import Observed, Replica
from trainmaster.queueing import Key, RoundRobin, WorkQueue

from tests.builders import a_job, a_replica
from tests.platforms import clock

WINDOW = 8  # requests that the API server bears at once
REQUEST_SECONDS = 0.1


@dataclass
class Slow:
    """A platform on which everything is a request, and only WINDOW of them are answered at a time."""

    jobs: dict[Key, TrainingJob] = field(default_factory=dict)
    replicas: dict[Key, dict[str, Replica]] = field(default_factory=dict)
    created: list[Key] = field(default_factory=list)
    small: asyncio.Event = field(default_factory=asyncio.Event)
    throttle: Throttle = field(default_factory=Throttle)

    def __post_init__(self) -> None:
        self.throttle.window = WINDOW

    async def observe(self, key: Key) -> tuple[TrainingJob, Observed] | None:
        return self.jobs[key], Observed(tuple(self.replicas.setdefault(key, {}).values()), frozenset({"Service"}))

    async def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> None:
        await self._request()
        self.jobs[Key(job.namespace, job.name)] = job.model_copy(update={"status": status})

    async def apply(self, job: TrainingJob, action: Action) -> None:
        await self._request()
        key = Key(job.namespace, job.name)
        if isinstance(action, CreateReplica):
            replica = a_replica(action.index, action.incarnation, action.role, job.name)
            self.replicas[key][replica.name] = replica
            self.created.append(key)
            if job.name == "small":
                self.small.set()

    async def _request(self) -> None:
        async with self.throttle.slot():
            await asyncio.sleep(REQUEST_SECONDS)

    def job(self, namespace: str, name: str, workers: int) -> Key:
        built = a_job().named(name).with_workers(workers).build()
        key = Key(namespace, name)
        self.jobs[key] = built.model_copy(
            update={"metadata": built.metadata.model_copy(update={"namespace": namespace})}
        )
        return key


@pytest.mark.parametrize(
    ("namespace", "large"), [("other", 1), ("lab", 1), ("other", 60)], ids=["one large", "in its namespace", "many"]
)
def test_a_small_jobs_pod_comes_soon(namespace: str, large: int) -> None:
    async def scenario() -> int:
        platform, queue = Slow(), WorkQueue()
        for number in range(large):
            queue.add(platform.job(namespace, f"large-{number}", 3000 // large + 100))
        async with loop.running(loop.Reconciler(platform, clock.now), queue):
            await asyncio.sleep(3)
            before = len(platform.created)
            queue.add(platform.job("lab", "small", 1))
            await platform.small.wait()
        return len(platform.created) - before

    assert clock.run(scenario()) <= 6 * WINDOW, "its two requests have a turn each, and a worker is free soon"


def test_namespaces_and_their_jobs_take_turns() -> None:
    waiting: RoundRobin[str] = RoundRobin()
    for word in ("a/x/1", "a/x/2", "a/x/3", "a/y/1", "b/z/1", "b/z/2", "b/z/2"):
        namespace, name, _ = word.split("/")
        waiting.add(Key(namespace, name), word)
    assert len(waiting) == 6
    assert [waiting.pop() for _ in range(6)] == ["a/x/1", "b/z/1", "a/y/1", "b/z/2", "a/x/2", "a/x/3"]


def test_a_job_whose_decisions_take_long_rests() -> None:
    async def scenario() -> list[float]:
        queue, key, began = WorkQueue(), Key("lab", "large"), asyncio.get_running_loop().time()
        times = []
        queue.add(key)
        for _ in range(3):
            await queue.get()
            times.append(asyncio.get_running_loop().time() - began)
            queue.add(key)  # it changes all the time
            queue.done(key, 0.5)
        return times

    assert clock.run(scenario()) == [0.0, 0.5, 1.0]
