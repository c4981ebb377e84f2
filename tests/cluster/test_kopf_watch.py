"""kopf's watch of TrainingJobs against a real API server, which a proxy makes misbehave; and no rights, and no kind."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import kopf
import pytest
from aiohttp import web
from trainmaster.cluster import informer as informer_module
from trainmaster.cluster import job_sweep as sweep_module
from trainmaster.cluster import watch_session
from trainmaster.cluster.api_connection import ApiConnection
from trainmaster.cluster.container import PodSettings
from trainmaster.cluster.controller import Address, Controller, OperatorOptions
from trainmaster.cluster.kopf_handlers import Operator
from trainmaster.wire import names

from tests.ports import free_port

from .apiserver import ApiServer, Document
from .fake_server import refusal
from .faulty_proxy import FaultyProxy
from .lab import MERGE_PATCH, TASK

_numbers = itertools.count(1)


class QuietController(Controller):
    """Everything of an operator but its loop: no job is touched."""

    async def _serve(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()
        await asyncio.Event().wait()


class Stage:
    """An operator in this process, that sees one namespace through a proxy."""

    def __init__(self, server: ApiServer, proxy: FaultyProxy, namespace: str) -> None:
        self.server, self.proxy = server, proxy
        self.path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
        self._namespace = namespace
        login = kopf.ConnectionInfo(server=proxy.url, token=server.token)
        connection = ApiConnection(lambda: login)
        probes, readiness = Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port())
        options = OperatorOptions(
            PodSettings("http://x", "trainer:1"), (namespace,), probes=probes, readiness=readiness
        )
        self.controller = QuietController(options, connection)
        self.operator = Operator(options, self.controller, connection)

    async def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Document:
        """Ask the API server itself, as its administrator."""
        return await asyncio.to_thread(self.server.call, method, path, body, kind)

    async def submit(self, name: str) -> Document:
        """Create a job."""
        spec = {"strategy": {"type": "AllReduce"}, "training": TASK}
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}
        return await self.call("POST", self.path, body)

    async def until_sees(self, *jobs: str) -> None:
        """Wait until the operator knows exactly these jobs."""
        await holds(lambda: sorted(record.key.name for record in self.controller._jobs) == sorted(jobs))


async def holds(what: Callable[[], bool]) -> None:
    """Wait until it does: nobody rings."""
    async with asyncio.timeout(200):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.fixture
async def stage(server: ApiServer) -> AsyncIterator[Stage]:
    """An operator that has read one job, `first`, and watches."""
    async with staged(server) as stage:
        await stage.proxy.watched()
        yield stage


@asynccontextmanager
async def staged(server: ApiServer) -> AsyncIterator[Stage]:
    namespace = f"kopf-{next(_numbers)}"
    async with FaultyProxy(server).running() as proxy:
        stage = Stage(server, proxy, namespace)
        await stage.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        await stage.submit("first")
        running = asyncio.create_task(stage.operator.run())
        try:
            await stage.until_sees("first")
            yield stage
        finally:
            proxy.fault = None
            stage.operator.end()
            await running


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(informer_module, "LONGEST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(watch_session, "SHORTEST_WATCH_SECONDS", 0.1)
    monkeypatch.setattr(sweep_module, "RELISTED_SECONDS", 0.1)


async def test_an_error_event_ends_kopf_and_not_the_operator(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Five times; our own tasks live on, and kopf leaves none behind."""
    ours, tasks = list(stage.controller._tasks), len(asyncio.all_tasks())
    for number in range(5):
        await stage.proxy.watched()
        await stage.proxy.say("ERROR", {"kind": "Status", "code": 500, "message": "etcd has no leader"})
        await holds(lambda number=number: caplog.text.count("kopf's watch has ended") > number)  # type: ignore[misc]
        await stage.submit(f"job-{number}")
        await stage.until_sees("first", *(f"job-{n}" for n in range(number + 1)))
    assert "etcd has no leader" in caplog.text
    assert not any(task.done() for task in ours)
    await stage.proxy.watched()
    await holds(lambda: len(asyncio.all_tasks()) <= tasks + 2)
    assert "Task was destroyed" not in caplog.text


async def test_what_vanished_while_the_watch_was_broken_is_missed(stage: Stage) -> None:
    """The watch's version is too old, so kopf lists anew; it does not tell what is no more in that list."""
    await stage.submit("second")
    await stage.until_sees("first", "second")
    silent = asyncio.Event()

    async def hold_back(_: web.Request) -> web.StreamResponse | None:
        await silent.wait()
        return None

    stage.proxy.fault = hold_back
    asked = len(stage.proxy.asked)
    stage.proxy.break_watches()
    await stage.call("DELETE", f"{stage.path}/second")
    await holds(lambda: "watch" in stage.proxy.asked[asked:])

    async def gone(request: web.Request) -> web.StreamResponse | None:
        if "watch" not in request.query:
            return None
        stage.proxy.fault = None
        return web.json_response({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})

    stage.proxy.fault = gone
    silent.set()
    await stage.until_sees("first")


async def test_stale_events_change_nothing(stage: Stage) -> None:
    """The watch repeats what was, as after a change of the API server behind a load balancer."""
    old = await stage.call("GET", f"{stage.path}/first")
    second = await stage.submit("second")
    edited = await stage.call("PATCH", f"{stage.path}/first", {"spec": {"suspend": True}}, MERGE_PATCH)
    await stage.call("DELETE", f"{stage.path}/second")
    version = edited["metadata"]["resourceVersion"]
    await holds(lambda: stage.controller._jobs.newest("") >= int(version) and len(stage.controller._jobs) == 1)
    await stage.proxy.say("MODIFIED", old)
    await stage.proxy.say("ADDED", second)
    await stage.submit("third")
    await stage.until_sees("first", "third")
    (first,) = (record for record in stage.controller._jobs if record.key.name == "first")
    assert first.document["metadata"]["resourceVersion"] == version


async def test_an_api_server_may_be_away_for_as_long_as_it_likes(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Left to itself, kopf would end after eight more tries."""
    caplog.set_level(logging.WARNING)

    async def away(request: web.Request) -> web.StreamResponse | None:
        assert request.transport
        if request.path.endswith(names.PLURAL):
            tried.append("watch" in request.query)
        request.transport.abort()
        return web.Response()

    tried: list[bool] = []
    stage.proxy.fault = away
    stage.proxy.break_watches()
    await stage.submit("second")
    await holds(lambda: tried.count(True) > 20)
    stage.proxy.fault = None
    await stage.until_sees("first", "second")
    assert "has ended" not in caplog.text


async def test_documents_that_kopf_does_not_bring_have_it_begin_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A watch that lives and tells nothing, as through a proxy that holds back what it is told."""
    monkeypatch.setattr(sweep_module, "LATE_SECONDS", 0.3)
    monkeypatch.setattr(sweep_module, "SWEEP_SECONDS", 0.2)
    stage.controller._jobs.take = lambda *_: None  # type: ignore[method-assign]
    await stage.submit("second")
    stage.controller._sweeps[0].relisted()
    await holds(lambda: "it has not brought 1 TrainingJobs" in caplog.text)
    del stage.controller._jobs.take
    await stage.until_sees("first", "second")


async def test_a_large_page_is_asked_for_in_smaller_ones(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_session, "MOST_PAGE_BYTES", 5_000)
    async with staged(server) as stage:
        for number in range(12):
            await stage.submit(f"job-{number}")
        stage.operator.restart_watch("the test wants a list")
        await stage.until_sees("first", *(f"job-{number}" for number in range(12)))
        stage.controller._jobs._entries.clear()
        stage.controller._jobs._groups.clear()
        stage.operator.restart_watch("the test wants another")
        await stage.until_sees("first", *(f"job-{number}" for number in range(12)))


async def test_a_server_that_ends_every_watch_is_not_asked_without_pause(stage: Stage) -> None:
    async def end(request: web.Request) -> web.StreamResponse | None:
        if "watch" not in request.query:
            return None
        times.append(asyncio.get_running_loop().time())
        return web.Response()

    times: list[float] = []
    stage.proxy.fault = end
    await stage.proxy.say("ERROR", {"kind": "Status", "code": 500, "message": "restart"})
    await holds(lambda: len(times) > 10)
    assert times[10] - times[0] > 0.5, "a pause of 0.1 s is waited for before each, which may come late by itself"


async def test_a_refused_token_is_read_again(stage: Stage) -> None:
    refused: list[str] = []

    async def expired(request: web.Request) -> web.StreamResponse | None:
        if "watch" in request.query and len(refused) < 3:
            refused.append(request.headers["Authorization"])
            return refusal(401, "Unauthorized")
        return None

    stage.proxy.fault = expired
    stage.proxy.break_watches()
    await holds(lambda: len(refused) == 3)
    await stage.submit("second")
    await stage.until_sees("first", "second")
