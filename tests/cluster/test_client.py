"""Requests to an API server that is busy, away, or says no."""

import asyncio
import time
from collections import Counter

import pytest
from aiohttp import web
from trainmaster.cluster import client as client_module
from trainmaster.cluster.client import RefusalError
from trainmaster.cluster.throttle import FIRST_WINDOW, LONG_SECONDS, Throttle
from trainmaster.loop import UnavailableError

from .fake_server import refusal, served


async def test_an_answer_is_its_json() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer token-1"
        return web.json_response({"path": request.path, "sent": await request.json()})

    async with served(handler) as client:
        assert await client.post("/api/v1/things", {"a": 1}) == {"path": "/api/v1/things", "sent": {"a": 1}}


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (409, "AlreadyExists"), (422, "Invalid")])
async def test_no_is_an_answer(status: int, reason: str) -> None:
    async def handler(_: web.Request) -> web.Response:
        return refusal(status, reason)

    async with served(handler) as client:
        with pytest.raises(RefusalError) as caught:
            await client.get("/x")
    assert (caught.value.status, caught.value.reason, caught.value.message) == (status, reason, f"no: {reason}")


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
async def test_a_server_in_trouble_is_unavailable(status: int) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text="<html>a proxy's own words</html>")

    async with served(handler) as client:
        with pytest.raises(UnavailableError, match=str(status)):
            await client.get("/x")


async def test_nobody_there_is_unavailable() -> None:
    async def handler(_: web.Request) -> web.Response:
        return refusal(500)

    async with served(handler) as client:
        pass
    await client.open()
    try:
        with pytest.raises(UnavailableError):
            await client.get("/x")
    finally:
        await client.close()


async def test_too_many_requests_wait_and_go_on() -> None:
    seen: Counter[str] = Counter()

    async def handler(request: web.Request) -> web.Response:
        seen[request.path] += 1
        if seen[request.path] == 1:
            return refusal(429, "TooManyRequests", {"Retry-After": "1"})
        return web.json_response({})

    async with served(handler) as client:
        began = time.monotonic()
        await asyncio.gather(*(client.get(f"/{number}") for number in range(8)))
        assert time.monotonic() - began > 0.7
        assert client.throttle.window < FIRST_WINDOW
    assert set(seen.values()) == {2}


async def test_credentials_that_ran_out_are_read_again() -> None:
    async def handler(request: web.Request) -> web.Response:
        old = request.headers["Authorization"] == "Bearer token-1"
        return refusal(401) if old else web.json_response({"fine": True})

    async with served(handler) as client:
        assert await client.get("/x") == {"fine": True}


async def test_a_silent_watch_is_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SILENCE_SECONDS", 0.2)

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async with served(handler) as client:
        with pytest.raises(UnavailableError):
            async for _ in client.watch("/x", {}):
                pass


async def test_long_lines_of_a_watch_are_whole() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for size in (10, 3_000_000, 20):
            await response.write(b'{"x": "' + b"y" * size + b'"}\n')
        return response

    async with served(handler) as client:
        sizes = [len(event["x"]) async for event in client.watch("/x", {})]
    assert sizes == [10, 3_000_000, 20]


async def test_who_gives_up_waiting_keeps_nobody_out() -> None:
    throttle, order = Throttle(), []
    throttle.window = 1.0

    async def work(name: str) -> None:
        async with throttle.slot():
            order.append(name)
            await asyncio.sleep(0.01)

    tasks = {name: asyncio.create_task(work(name)) for name in "abcd"}
    await asyncio.sleep(0)
    tasks["b"].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert order == ["a", "c", "d"]
    async with throttle.slot():
        tasks["e"] = asyncio.create_task(work("e"))
        await asyncio.sleep(0)
    tasks["e"].cancel()  # it has just been let in
    await asyncio.gather(tasks["e"], return_exceptions=True)
    await asyncio.wait_for(work("f"), 60)
    assert order[-1] == "f"


async def test_the_window_grows_and_shrinks() -> None:
    throttle = Throttle()
    for _ in range(200):
        throttle.went_well()
    grown = throttle.window
    assert grown > FIRST_WINDOW
    for _ in range(50):
        throttle.too_many(0.0)  # one burst: counted once
    assert throttle.window == grown / 2


async def test_slow_answers_bring_the_window_back_to_where_it_began() -> None:
    """More requests at once would only wait in the API server, before those of other jobs."""
    throttle = Throttle()
    throttle.went_well(LONG_SECONDS + 0.1)
    assert throttle.window == FIRST_WINDOW
    for _ in range(200):
        throttle.went_well(LONG_SECONDS - 0.1)
    assert throttle.window > FIRST_WINDOW
    for _ in range(1000):
        throttle.went_well(LONG_SECONDS + 0.1)
    assert throttle.window == FIRST_WINDOW
    throttle.window = FIRST_WINDOW / 4
    for _ in range(100):
        throttle.went_well(LONG_SECONDS + 0.1)
    assert throttle.window == FIRST_WINDOW / 4, "the API server asked for fewer"


async def test_no_more_than_the_window_is_under_way() -> None:
    throttle, under_way, most = Throttle(), 0, 0
    throttle.window = 3.0

    async def work() -> None:
        nonlocal under_way, most
        async with throttle.slot():
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 3
