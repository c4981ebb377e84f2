"""List and watch against a server that forgets, lies low and talks nonsense."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError
from trainmaster.api.job import TrainingJob
from trainmaster.cluster import client as client_module
from trainmaster.cluster import informer as informer_module
from trainmaster.cluster import jobs
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.container import PodSettings
from trainmaster.cluster.controller import Address, Controller, OperatorOptions
from trainmaster.cluster.informer import Informer
from trainmaster.cluster.scope_reader import HUNG_SECONDS

from .fake_server import Document, Watch, refusal, served

GONE = ("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})


def thing(name: str, version: int) -> Document:
    metadata = {"namespace": "lab", "name": name, "uid": name, "resourceVersion": str(version)}
    return {"metadata": metadata}


def listing(version: int, *items: Document) -> web.Response:
    return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": list(items)})


class Stage:
    """A cache that an informer keeps, and a condition on it to wait for."""

    def __init__(self) -> None:
        self.told: list[tuple[str | None, str | None]] = []
        self.cache: Cache[str] = Cache(lambda d: str(d["metadata"]["name"]), lambda name: name, self._note)
        self._news = asyncio.Event()

    def _note(self, old: str | None, new: str | None) -> None:
        self.told.append((old, new))
        self._news.set()

    async def until(self, *expected: str) -> None:
        """Until exactly these are there."""
        while sorted(self.cache) != sorted(expected):
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 100)


@asynccontextmanager
async def informed(
    on_list: Callable[[], Awaitable[web.StreamResponse]], on_watch: Callable[[Watch], Awaitable[web.StreamResponse]]
) -> AsyncIterator[Stage]:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await (on_watch(Watch(request)) if "watch" in request.query else on_list())

    stage = Stage()
    async with served(handler) as client:
        task = asyncio.create_task(Informer(client, "/things", stage.cache).run())
        try:
            yield stage
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(informer_module, "LONGEST_PAUSE_SECONDS", 0.05)


async def test_goes_on_from_where_it_was() -> None:
    versions: list[str] = []

    async def on_list() -> web.StreamResponse:
        return listing(5, thing("a", 3))

    async def on_watch(watch: Watch) -> web.StreamResponse:
        versions.append(watch.version)
        if len(versions) == 1:
            return await watch.send(("ADDED", thing("b", 6)), ("BOOKMARK", thing("", 9)))
        await watch.send(("DELETED", thing("a", 12)))
        return await watch.silence()

    async with informed(on_list, on_watch) as stage:
        await stage.until("b")
    assert versions == ["5", "9"]
    assert stage.told == [(None, "a"), (None, "b"), ("a", None)]


@pytest.mark.parametrize("how", ["event", "answer"])
async def test_too_old_a_version_lists_anew_and_tells_what_has_gone(how: str) -> None:
    lists = iter([listing(5, thing("a", 1), thing("b", 2)), listing(50, thing("b", 2), thing("c", 40))])
    watches = 0

    async def on_list() -> web.StreamResponse:
        return next(lists)

    async def on_watch(watch: Watch) -> web.StreamResponse:
        nonlocal watches
        watches += 1
        if watches > 1:
            return await watch.silence()
        return await watch.send(GONE) if how == "event" else refusal(410, "Expired")

    async with informed(on_list, on_watch) as stage:
        await stage.until("b", "c")
    assert stage.told == [(None, "a"), (None, "b"), ("a", None), (None, "c")]


async def test_a_half_open_line_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SILENCE_SECONDS", 0.2)
    watches = 0

    async def on_list() -> web.StreamResponse:
        return listing(5)

    async def on_watch(watch: Watch) -> web.StreamResponse:
        nonlocal watches
        watches += 1
        if watches > 1:
            await watch.send(("ADDED", thing("a", 6)))
        return await watch.silence()

    async with informed(on_list, on_watch) as stage:
        await stage.until("a")
    assert watches > 1


async def test_a_watch_that_tells_nothing_at_all_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after etcd was restored from a backup: events are numbered from before, and kept from whoever knows more."""
    monkeypatch.setattr(client_module, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(informer_module, "QUIET_SECONDS", 0.1)
    lists = [listing(40, thing("a", 30), thing("b", 35)), listing(100, thing("a", 90))]

    async def on_list() -> web.StreamResponse:
        return lists.pop() if len(lists) > 1 else lists[0]

    async with informed(on_list, Watch.silence) as stage:
        await stage.until("a")
        await stage.until("a", "b")


async def test_a_server_in_trouble_is_asked_until_it_is_well() -> None:
    answers: list[web.StreamResponse] = [listing(5, thing("a", 1)), *(refusal(500) for _ in range(4)), refusal(403)]

    async def on_list() -> web.StreamResponse:
        return answers.pop()

    async with informed(on_list, Watch.silence) as stage:
        await stage.until("a")
    assert answers == []


async def test_nonsense_does_not_blind_for_ever() -> None:
    nonsense: Any = {"metadata": {"name": "bad"}}
    watches = 0

    async def on_list() -> web.StreamResponse:
        return listing(5) if watches == 0 else listing(9, thing("a", 8))

    async def on_watch(watch: Watch) -> web.StreamResponse:
        nonlocal watches
        watches += 1
        return await watch.send(("ADDED", nonsense)) if watches == 1 else await watch.silence()

    async with informed(on_list, on_watch) as stage:
        await stage.until("a")


async def test_long_lists_come_in_pages() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await Watch(request).silence()
        number = int(request.query.get("continue", "0"))
        metadata = {"resourceVersion": "7", **({"continue": str(number + 1)} if number < 2 else {})}
        return web.json_response({"metadata": metadata, "items": [thing(f"a{number}", number + 1)]})

    stage = Stage()
    async with served(handler) as client:
        informer = Informer(client, "/things", stage.cache)
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 100)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert sorted(stage.cache) == ["a0", "a1", "a2"]


async def test_a_list_of_many_pages_does_not_hang() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await Watch(request).silence()
        number = int(request.query.get("continue", "0"))
        if number < 2:
            hung.append(informer.hung)
            informer._pulse -= HUNG_SECONDS  # so long it took
        return web.json_response({"metadata": {"resourceVersion": "7", "continue": "12"[number:][:1]}, "items": []})

    hung: list[bool] = []
    async with served(handler) as client:
        informer = Informer(client, "/things", Stage().cache)
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 100)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert hung == [False, False]


async def holds(what: Callable[[], bool]) -> None:
    """Until it does: nobody rings."""
    while not what():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_a_namespace_that_is_not_ours_to_read_keeps_no_other_waiting() -> None:
    granted = False

    async def handler(request: web.Request) -> web.StreamResponse:
        if "/namespaces/b/" in request.path and not granted:
            return refusal(403, "Forbidden")
        return await Watch(request).silence() if "watch" in request.query else listing(5)

    anywhere = Address("127.0.0.1", 0)
    options = OperatorOptions(
        PodSettings("http://operator", "trainer:1"), ("a", "b"), listen=anywhere, readiness=anywhere
    )
    async with served(handler) as client, asyncio.timeout(100):
        controller = Controller(options, client._connection)
        await controller.start()
        try:
            await holds(lambda: controller._at_work)
            assert controller.ready
            assert (controller._has_read("a"), controller._has_read("b")) == (True, False)
            granted = True
            await holds(lambda: controller._has_read("b"))
        finally:
            await controller.stop()


async def test_where_nothing_at_all_may_be_read_nobody_is_at_work() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return refusal(403, "Forbidden")

    async with served(handler) as client:
        informer = Informer(client, "/things", Stage().cache)
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(0.2)
        assert not informer.answered.is_set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def nested(levels: int) -> bytes:
    """An object in an object in an object ..."""
    return b'{"a":' * levels + b"1" + b"}" * levels


def a_nested_job(name: str, levels: int, version: int) -> bytes:
    """A job whose arguments are so deep; in its metadata the API server repeats who wrote which of them."""
    job = {
        **thing(name, version),
        "spec": {"strategy": {"type": "OneDevice"}, "training": {"task": "a:B", "arguments": "HERE"}},
    }
    job["metadata"]["managedFields"] = ["HERE"]
    return json.dumps(job).encode().replace(b'"HERE"', nested(levels))


@pytest.mark.parametrize("levels", [101, 500, 960, 1500, 9000])
async def test_a_deeply_nested_job_blinds_nobody_and_is_invalid_itself(levels: int) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = b",".join([a_nested_job("deep", levels, 1), a_nested_job("plain", 50, 2)])
            return web.Response(body=b'{"metadata":{"resourceVersion":"5"},"items":[' + items + b"]}")
        watch = Watch(request)
        response = await watch.send()
        for name, version in (("deeper", 6), ("after", 7)):
            job = a_nested_job(name, levels if name == "deeper" else 1, version)
            await response.write(b'{"type":"ADDED","object":' + job + b"}\n")
        return await watch.silence()

    async with served(handler) as client, asyncio.timeout(100):
        cache = Cache(jobs.read, lambda record: record.key, lambda _old, _new: None)
        task = asyncio.create_task(Informer(client, "/things", cache).run())
        await holds(lambda: len(cache) == 4)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert {record.key.name for record in cache if isinstance(record.parsed, TrainingJob)} == {"plain", "after"}
    deep = cache.get("lab", "deep")
    assert deep is not None
    assert isinstance(deep.parsed, ValidationError)
    report = jobs.invalid(deep, deep.parsed)
    assert report is not None
    assert "spec: it is nested more than 100 levels deep" in (report[0].message or "")
