"""What the platform keeps in mind of pods that could not be made."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from trainmaster.cluster import jobs, pods, refusals
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.container import PodSettings
from trainmaster.cluster.platform import Caches, ClusterPlatform, ServiceRecord
from trainmaster.cluster.reporting import Reporter
from trainmaster.core.actions import Action, CreateReplica, CreateService, DeleteReplica, GiveOrders
from trainmaster.core.observed import Obstacle
from trainmaster.intake import Intake
from trainmaster.loop import UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.messages import WAIT, Orders

from tests.builders import JobBuilder, a_job

from .fake_server import refusal, served

KEY = Key("lab", "digits")


class Stage:
    """A platform, the job that it sees, and what was asked of its server, which refuses everything."""

    def __init__(self, answer: Callable[[], web.Response] = lambda: refusal(403, "Forbidden")) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.version = 0
        self.jobs = Cache(jobs.read, lambda record: record.key, _ignore)

    def see(self, job: JobBuilder) -> None:
        """The job as the API server has it now."""
        self.version += 1
        metadata = {**job.metadata, "resourceVersion": str(self.version)}
        self.jobs.replace("", [{"metadata": metadata, "spec": job.spec, "status": job.status}], self.version)

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
            services: Cache[ServiceRecord] = Cache(_no_service, lambda record: record.job, _ignore)
            caches = Caches(self.jobs, Cache(pods.read, lambda record: record.job, _ignore), services, lambda _: True)
            settings = PodSettings("http://operator", "trainer:1")
            intake = Intake(_nobody, _ignore)
            yield ClusterPlatform(
                client, caches, intake=intake, reporter=Reporter(client), settings=settings, wake=_ignore
            )


def _ignore(*_: object) -> None:
    pass


def _no_service(_: dict[str, Any]) -> ServiceRecord:
    raise AssertionError("there is none")


async def _nobody(*_: object) -> Any:
    raise AssertionError("no agent calls")


async def refused(platform: ClusterPlatform) -> tuple[Obstacle, ...]:
    """What is told of it."""
    seen = await platform.observe(KEY)
    assert seen is not None
    return seen[1].refused


async def test_a_refused_wish_names_what_it_is_about_and_a_suspension_takes_it_back() -> None:
    stage = Stage()
    stage.see(a_job())
    async with stage.platform() as platform:
        job = a_job().build()
        for action in (CreateReplica(names.WORKER, 0, 0), CreateService()):
            await platform.apply(job, action)
        assert [one.name for one in await refused(platform)] == ["digits-worker-0-0", "digits"]
        stage.see(a_job().at("Suspended"))
        assert await refused(platform) == ()
        stage.see(a_job().at("Pending"))
        assert await refused(platform) == ()
        await platform.apply(job, CreateReplica(names.WORKER, 0, 0))
        assert len(await refused(platform)) == 1, "it is tried at once"
    assert stage.asked == ["pods", "services", "pods"]


WORKER = CreateReplica(names.WORKER, 0, 0)


async def test_what_breaks_again_and_again_is_told_and_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 0.0)
    stage = Stage(lambda: refusal(500, "InternalError"))
    stage.see(a_job())
    job, delete = a_job().build(), DeleteReplica("digits-worker-1-0", "uid")
    async with stage.platform() as platform:
        for action in (WORKER, delete):
            await platform.apply(job, action)
        assert await refused(platform) == ()
        monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 60.0)
        actions: tuple[Action, ...] = (WORKER, delete, CreateService())
        for one in actions * 2:
            await platform.apply(job, one)
        told = [(one.reason, one.message, one.name) for one in await refused(platform)]
    why = ("InternalError", "no: InternalError")
    assert told == [(*why, "digits-worker-0-0"), (*why, "")]
    assert len(stage.asked) == 7


async def test_a_server_that_is_away_stands_in_nobody_s_way() -> None:
    stage = Stage(lambda: web.Response(status=503))
    stage.see(a_job())
    async with stage.platform() as platform:
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await platform.apply(a_job().build(), WORKER)
        assert await refused(platform) == ()


async def test_what_is_refused_to_a_job_that_went_meanwhile_is_not_kept() -> None:
    stage = Stage()
    stage.see(a_job())
    async with stage.platform() as platform:
        stage.delete()
        await platform.apply(a_job().build(), WORKER)
        stage.see(a_job())
        assert await refused(platform) == ()


async def test_orders_for_a_pod_that_went_meanwhile_are_not_kept() -> None:
    stage = Stage()
    stage.see(a_job())
    async with stage.platform() as platform:
        await platform.apply(a_job().build(), GiveOrders((("gone", Orders(WAIT, 1, "")),)))
        assert not platform._intake._lines


async def test_what_no_pod_can_be_made_of_is_told_like_a_refusal() -> None:
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": 5}]}}
    avoided = {"node": "node-1", "until": "9999-01-01T00:00:00Z", "reason": "It failed."}
    job = a_job().with_workers(1, affinity={"nodeAffinity": terms}).at("Running", avoidedNodes=[avoided])
    stage = Stage()
    stage.see(job)
    async with stage.platform() as platform:
        await platform.apply(job.build(), CreateReplica(names.WORKER, 0, 0))
        (obstacle,) = await refused(platform)
    assert (obstacle.reason, obstacle.name, stage.asked) == ("Invalid", "digits-worker-0-0", [])
    assert "spec.workers: no pod can be made of it (TypeError" in obstacle.message
