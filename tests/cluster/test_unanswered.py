"""A status that was written, though nobody was told: it is found out before anything is decided."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cluster import jobs, pod_reading
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.cluster_platform import Caches, ClusterPlatform
from trainmaster.cluster.container import PodSettings
from trainmaster.cluster.reporting import EventReporter
from trainmaster.intake import Intake
from trainmaster.loop import UnavailableError
from trainmaster.queueing import Key

from tests.builders import a_job

from .fake_server import Document, refusal, served

KEY = Key("lab", "digits")


class Server:
    """It has one job, and may take a write without an answer. No watch tells of anything."""

    def __init__(self) -> None:
        job = a_job()
        self.job: Document | None = {
            "metadata": {**job.metadata, "resourceVersion": "1"},
            "spec": job.spec,
            "status": {"phase": "Pending"},
        }
        self.answers = True
        self.down = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        if self.job is None:
            return refusal(404, "NotFound")
        if request.method == "PATCH":
            (status,) = [one["value"] for one in await request.json() if one["path"] == "/status"]
            version = int(self.job["metadata"]["resourceVersion"]) + 1
            self.job = {**self.job, "metadata": {**self.job["metadata"], "resourceVersion": f"{version}"}}
            self.job["status"] = status
        if self.down or not (self.answers or request.method == "GET"):
            assert request.transport
            request.transport.abort()
        return web.json_response(self.job)

    @asynccontextmanager
    async def platform(self) -> AsyncIterator[ClusterPlatform]:
        """It has seen the job as it was at first."""
        async with served(self.answer) as client:
            seen = Cache(jobs.read, lambda record: record.key, _ignore)
            seen.replace("", [self.job or {}], 1)
            services: Cache[Any] = Cache(_ignore, _ignore, _ignore)
            caches = Caches(
                seen, Cache(pod_reading.read, lambda record: record.job, _ignore), {"Service": services}, lambda _: True
            )
            intake, settings = Intake(_nobody, _ignore), PodSettings("http://operator", "trainer:1")
            yield ClusterPlatform(
                client, caches, intake=intake, reporter=EventReporter(client), settings=settings, wake=_ignore
            )


def _ignore(*_: object) -> None:
    pass


async def _nobody(*_: object) -> Any:
    raise AssertionError("no agent calls")


async def written_unanswered(server: Server, platform: ClusterPlatform) -> None:
    """Attempt 2 is written, and the answer is lost."""
    seen = await platform.observe(KEY)
    assert seen
    server.answers = False
    with pytest.raises(UnavailableError):
        await platform.write_status(seen[0], TrainingJobStatus(phase=Phase.RESTARTING, attempt=2))


async def test_what_was_written_unanswered_is_found_out_first() -> None:
    server = Server()
    async with server.platform() as platform:
        await written_unanswered(server, platform)
        server.down = True
        with pytest.raises(UnavailableError):
            await platform.observe(KEY)
        server.down = False
        seen = await platform.observe(KEY)
        assert seen
        assert (seen[0].status.phase, seen[0].status.attempt) == ("Restarting", 2)
        server.down = True
        assert await platform.observe(KEY), "once it is known, nobody is asked again"


async def test_a_job_that_went_after_an_unanswered_write_is_gone() -> None:
    server = Server()
    async with server.platform() as platform:
        await written_unanswered(server, platform)
        server.job = None
        assert await platform.observe(KEY) is None
