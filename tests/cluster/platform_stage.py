"""A platform of the Kubernetes platform alone: a test says what its caches hold and what its server answers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from trainmaster.cluster import job_objects, jobs, pod_reading
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.cluster_platform import Caches, ClusterPlatform
from trainmaster.cluster.container import PodSettings
from trainmaster.cluster.reporting import EventReporter
from trainmaster.core.states.observed import Observed, Obstacle
from trainmaster.intake import Intake, Speaker
from trainmaster.queueing import Key
from trainmaster.wire import names

from tests.builders import JobBuilder

from .fake_server import refusal, served

KEY = Key("lab", "digits")
LABELS = {
    names.LABEL_JOB: "digits",
    names.LABEL_ROLE: names.WORKER,
    names.LABEL_INDEX: "0",
    names.LABEL_INCARNATION: "0",
}
OWNER = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "digits", "uid": "job-1", "controller": True}
POD = {
    "name": "digits-worker-0-0",
    "namespace": "lab",
    "uid": "pod-1",
    "creationTimestamp": "2026-03-01T12:00:00Z",
    "labels": LABELS,
    "ownerReferences": [OWNER],
}


class Stage:
    """A platform, the job that it sees, and what was asked of its server, which refuses everything."""

    def __init__(self, answer: Callable[[], web.Response] = lambda: refusal(403, "Forbidden")) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.version = 0
        self.jobs = Cache(jobs.read, lambda record: record.key, _ignore)
        self.pods = Cache(pod_reading.read, lambda record: record.job, _ignore)
        self.intake = Intake(_anybody, _ignore)

    def see(self, job: JobBuilder) -> None:
        """The job as the API server has it now."""
        self.version += 1
        metadata = {**job.metadata, "resourceVersion": str(self.version)}
        self.jobs.replace("", [{"metadata": metadata, "spec": job.spec, "status": job.status}], self.version)

    def see_pod(self, status: dict[str, Any], **metadata: Any) -> None:
        """The pod of worker 0 as the API server has it now."""
        self.version += 1
        named = {**POD, "resourceVersion": str(self.version), **metadata}
        pod = {"metadata": named, "spec": {"nodeName": "node-1"}, "status": status}
        self.pods.replace("", [pod], self.version)

    def delete(self) -> None:
        """The job is gone."""
        self.version += 1
        self.jobs.replace("", [], self.version)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """No."""
        self.asked.append(request.path.rpartition("/")[2])
        return self._answer()

    @asynccontextmanager
    async def platform(self) -> AsyncIterator[ClusterPlatform]:
        """As the loop sees it."""
        async with served(self.answer) as client:
            services = Cache(job_objects.read, lambda record: record.job, _ignore)
            caches = Caches(self.jobs, self.pods, {"Service": services}, lambda _: True)
            settings = PodSettings("http://operator", "trainer:1")
            yield ClusterPlatform(
                client, caches, intake=self.intake, reporter=EventReporter(client), settings=settings, wake=_ignore
            )


def _ignore(*_: object) -> None:
    pass


async def _anybody(_token: str) -> Speaker:
    """Whoever calls in is believed."""
    return Speaker("", lambda _: None)


async def observed(platform: ClusterPlatform) -> Observed:
    """What exists of it."""
    seen = await platform.observe(KEY)
    assert seen is not None
    return seen[1]


async def refused(platform: ClusterPlatform) -> tuple[Obstacle, ...]:
    """What is told of it."""
    return (await observed(platform)).refused
