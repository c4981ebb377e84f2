"""What answers to heartbeats weigh: a roster is sent once to each agent, not with every answer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

from trainmaster.intake import Intake, Speaker
from trainmaster.listening.listener import Listener
from trainmaster.wire import codec
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import Heartbeat, Member, Orders, Rendezvous, Roster

from tests.builders import a_heartbeat
from tests.listening.asking import post

MEMBERS = tuple(Member("worker", index, 0, f"10.0.0.{index}", index, 1) for index in range(1000))
ORDERS = Orders(Verb.RUN, 1, "all are here", Roster(1, MEMBERS, "10.0.0.0", Rendezvous(29500, "key")))
BEAT = dataclasses.replace(a_heartbeat(), pod_uid="the-pod", hold=False, takes_204=True)


@dataclasses.dataclass
class Asking:
    """A connection to an intake, kept open as an agent keeps it."""

    intake: Intake
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def beat(self, heartbeat: Heartbeat) -> tuple[int, bytes, int]:
        """Return the status, the body and the number of bytes of the whole answer."""
        body = codec.encode(heartbeat)
        self.writer.write(post(len(body)).encode() + b"\r\n\r\n" + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        content = await self.reader.readexactly(int(lines.get(b"content-length", b"0")))
        return int(head.split()[1]), content, len(head) + len(content)


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[Asking]:
    intake = Intake(_anybody, lambda _: None)
    listener = Listener(intake.application())
    reader, writer = await asyncio.open_connection("127.0.0.1", await listener.start("127.0.0.1", 0), limit=1 << 20)
    yield Asking(intake, reader, writer)
    writer.close()
    await listener.stop()


async def _anybody(_token: str) -> Speaker:
    return Speaker("the-pod", lambda _: None)


async def test_an_answer_without_news_has_no_body() -> None:
    async with asking() as agent:
        agent.intake.give_orders("the-pod", ORDERS)
        status, body, _ = await agent.beat(BEAT)
        assert (status, codec.decode(Orders, body)) == (200, ORDERS)
        assert len(body) > 50_000, "a thousand members"
        seen = dataclasses.replace(BEAT, orders_seen=ORDERS.version)
        answers = [await agent.beat(dataclasses.replace(seen, sequence=number)) for number in range(2, 12)]
        assert {(status, body) for status, body, _ in answers} == {(204, b"")}
        assert sum(size for _, _, size in answers) < 10 * 300


async def test_equal_orders_are_no_news_and_others_are() -> None:
    async with asking() as agent:
        agent.intake.give_orders("the-pod", ORDERS)
        seen = dataclasses.replace(BEAT, orders_seen=ORDERS.version)
        agent.intake.give_orders("the-pod", codec.decode(Orders, codec.encode(ORDERS)))
        assert (await agent.beat(seen))[0] == 204
        other = dataclasses.replace(ORDERS, reason="one went")
        agent.intake.give_orders("the-pod", other)
        status, body, _ = await agent.beat(dataclasses.replace(seen, sequence=2))
        assert (status, codec.decode(Orders, body)) == (200, other)


async def test_before_the_job_was_looked_at_an_agent_is_told_so_once() -> None:
    async with asking() as agent:
        status, body, _ = await agent.beat(BEAT)
        assert status == 200
        seen = dataclasses.replace(BEAT, orders_seen=codec.decode(Orders, body).version, sequence=2)
        assert (await agent.beat(seen))[0] == 204


async def test_an_older_agent_gets_its_orders_with_every_answer() -> None:
    async with asking() as agent:
        agent.intake.give_orders("the-pod", ORDERS)
        older = dataclasses.replace(BEAT, takes_204=False, orders_seen=ORDERS.version)
        assert b"takes_204" not in codec.encode(older), "it does not know the word"
        status, body, _ = await agent.beat(older)
        assert (status, codec.decode(Orders, body)) == (200, ORDERS)
