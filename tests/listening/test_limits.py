"""The times and counts of a listener, with limits that are small enough to be waited for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from trainmaster.intake import REQUEST_BYTES, SPEAKER_BYTES, SPEAKER_BYTES_PER_SECOND, Allowance
from trainmaster.listening.http_connection import connection_of
from trainmaster.listening.limits import Limits
from trainmaster.listening.listener import Listener

SOON = 0.05
LIMITS = Limits(head_seconds=SOON, body_seconds=SOON, idle_seconds=SOON, unread_seconds=SOON, bodies_bytes=100_000)
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


async def answer(request: web.Request) -> web.Response:
    """Prove whoever names itself, take the body, and say a lot."""
    connection, length = connection_of(request), request.content_length or 0
    assert connection
    connection.prove(request.headers.get("X-Speaker", ""))
    if not connection.take_body(length):
        return web.Response(status=503)
    await request.read()
    return web.Response(body=b"x" * (16 << 20 if "X-Much" in request.headers else 1))


@contextlib.asynccontextmanager
async def listening(limits: Limits) -> AsyncIterator[tuple[Listener, int]]:
    application = web.Application()
    application.router.add_post("/", answer)
    made = Listener(application, limits)
    yield made, await made.start("127.0.0.1", 0)
    await made.stop()


@pytest.fixture
async def listener() -> AsyncIterator[tuple[Listener, int]]:
    async with listening(LIMITS) as made:
        yield made


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def say(port: int, words: bytes) -> Line:
    line = await asyncio.open_connection("127.0.0.1", port)
    line[1].write(words)
    return line


async def is_closed(line: Line) -> bool:
    """Wait until the other end has closed it."""
    try:
        while await line[0].read(1 << 16):
            pass
    except ConnectionError:
        pass
    line[1].close()
    return True


@pytest.mark.parametrize(
    "words",
    [b"", b"POST / HT", HEAD + b"abc", HEAD + b"abcd"],
    ids=["says nothing", "half a head", "half a body", "idle after an answer"],
)
async def test_who_does_not_come_to_the_point_is_hung_up_on(listener: tuple[Listener, int], words: bytes) -> None:
    assert await is_closed(await say(listener[1], words))


async def test_who_does_not_read_its_answer_is_hung_up_on() -> None:
    async with listening(Limits(unread_seconds=SOON)) as (made, port):
        reader, writer = await say(port, HEAD.replace(b"Host", b"X-Much: 1\r\nHost") + b"abcd")
        await reader.readexactly(1)
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # a stream reads ahead by itself
        while len(made.connections):  # noqa: ASYNC110  nobody tells when a connection is gone
            await asyncio.sleep(SOON / 10)
        writer.close()


async def test_a_speaker_has_a_few_connections_and_the_oldest_goes_first() -> None:
    async with listening(Limits(of_speaker=2)) as (_, port):
        lines = [await say(port, HEAD.replace(b"Host", b"X-Speaker: a\r\nHost")) for _ in range(4)]
        assert [await is_closed(line) for line in lines[:2]] == [True, True]
        for reader, writer in lines[2:]:
            writer.write(b"abcd")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()


async def test_of_one_address_the_oldest_stranger_goes_first() -> None:
    async with listening(Limits(strangers_of_address=2)) as (_, port):
        lines = [await say(port, b"P") for _ in range(3)]
        assert await is_closed(lines[0])
        for reader, writer in lines[1:]:
            writer.write(HEAD[1:] + b"abcd")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()


async def test_large_bodies_share_what_room_there_is() -> None:
    large = HEAD.replace(b": 4", b": 60000")
    async with listening(Limits(bodies_bytes=LIMITS.bodies_bytes, body_seconds=2.0)) as (_, port):
        first, second = [await say(port, large + b"x") for _ in range(2)]
        assert (await second[0].readline()).startswith(b"HTTP/1.1 503")
        assert await is_closed(first)
        third = await say(port, large + b"x" * 60_000)
        told = (await third[0].readline()).startswith(b"HTTP/1.1 200")
        assert told, "the room of a body that never came is free again"


async def test_a_unix_socket_is_its_own_users_alone(tmp_path: Path) -> None:
    made = Listener(web.Application(), LIMITS)
    await made.start_at(tmp_path / "intake")
    assert (tmp_path / "intake").stat().st_mode & 0o777 == 0o600
    await made.stop()


def test_what_one_speaker_may_send_is_bounded_and_comes_back_with_time() -> None:
    allowance = Allowance()
    large = SPEAKER_BYTES // 4 - REQUEST_BYTES
    assert [allowance.takes(large, 0.0) for _ in range(5)] == [True, True, True, True, False]
    assert not allowance.takes(large, large / SPEAKER_BYTES_PER_SECOND)
    assert allowance.takes(large, (large + REQUEST_BYTES) / SPEAKER_BYTES_PER_SECOND)
    assert all(Allowance(since=1.0).takes(1000, 1.0 + second / 8) for second in range(1000)), "a true agent's"
