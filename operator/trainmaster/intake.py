"""Where agents call in: one HTTP route, used by both hands.

A heartbeat is verified, remembered, and answered with orders: at once when they are new to the agent, else after a
while. All of it is memory; nothing here writes to an API server or a disk.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from trainmaster.core.credible import believed, doubt
from trainmaster.core.observed import SILENT_SECONDS, Replica
from trainmaster.loop import UnavailableError
from trainmaster.queueing import Key
from trainmaster.seldom import Seldom
from trainmaster.wire import codec, names
from trainmaster.wire.messages import WAIT, Heartbeat, Orders
from trainmaster.wire.printable import printable

log = logging.getLogger("trainmaster.intake")


class RefusedError(Exception):
    """A heartbeat that is not believed. The text says why."""


# Checks the bearer token against what the heartbeat claims; raises RefusedError.
Verify = Callable[[str, Heartbeat], Awaitable[None]]


# Agents that have nothing new are asked to wait longer, the more of them there are: so many answers a second at most.
ANSWERS_PER_SECOND = 100.0
# Beyond what the orders say. An agent gives a request up 10 s after that.
LONGEST_MORE_SECONDS = 5.0
_LONGEST_LOGGED = 200  # letters of what a stranger says


@dataclass(frozen=True)
class Posted:
    """Orders as they are sent: made once for all agents of a job."""

    orders: Orders
    version: str
    body: bytes

    @classmethod
    def of(cls, orders: Orders) -> "Posted":
        """Ready to be sent."""
        return cls(orders, orders.version, codec.encode(orders))


@dataclass
class Line:
    """The line to one agent: what it said last, and what it is to be told."""

    heartbeat: Heartbeat | None = None
    heard: float = 0.0  # when, by the event loop's clock
    posted: Posted | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Intake:
    """All lines, by the uid of the replica."""

    def __init__(self, verify: Verify, on_news: Callable[[Key], None]) -> None:
        self._verify = verify
        self._on_news = on_news
        self._lines: dict[str, Line] = {}
        self._last_refusal: tuple[str, str, int, str] | None = None
        self._seldom = Seldom()
        self._newest: Posted | None = None

    def heartbeat(self, uid: str) -> Heartbeat | None:
        """What the replica's agent said last."""
        line = self._lines.get(uid)
        return line.heartbeat if line else None

    def heard(self, replica: Replica) -> Replica:
        """With what its agent said last, and how long ago that was."""
        line = self._lines.get(replica.uid)
        if line is None or line.heartbeat is None:
            return replica
        return dataclasses.replace(replica, heartbeat=line.heartbeat, silent_seconds=_now() - line.heard)

    def give_orders(self, uid: str, orders: Orders) -> None:
        """Tell the agent at its next word, or now if it is listening."""
        line, posted = self._lines.setdefault(uid, Line()), self._posted(orders)
        if line.posted is None or line.posted.version != posted.version:
            line.posted = posted
            line.changed.set()
            line.changed = asyncio.Event()

    def forget(self, uid: str) -> None:
        """The replica is gone."""
        line = self._lines.pop(uid, None)
        if line:
            line.changed.set()

    def application(self) -> web.Application:
        """The route, ready to be served."""
        app = web.Application(client_max_size=names.MAX_HEARTBEAT_BYTES)
        app.router.add_post(names.HEARTBEAT_PATH, self._receive)
        return app

    async def _receive(self, request: web.Request) -> web.Response:
        try:
            heartbeat = _read(await request.read())
            await self._verify(_bearer(request), heartbeat)
        except codec.WireError as error:
            return web.Response(status=400, text=str(error))
        except RefusedError as error:
            self._log_refusal(heartbeat, str(error))
            return web.Response(status=403, text=str(error))
        except UnavailableError as error:  # neither believed nor refused: the agent asks again
            return web.Response(status=503, text=str(error))
        posted = await self._answer(heartbeat) or _nothing_yet(heartbeat)
        return web.Response(body=posted.body, content_type="application/json")

    async def _answer(self, heartbeat: Heartbeat) -> Posted | None:
        line = self._lines.setdefault(heartbeat.pod_uid, Line())
        if _is_newer(line.heartbeat, heartbeat):
            before, line.heartbeat = line.heartbeat, believed(heartbeat)
            silent, line.heard = _now() - line.heard > SILENT_SECONDS, _now()
            if silent or _matters(before, line.heartbeat):
                self._on_news(Key(*heartbeat.job.split("/", 1)))
        if heartbeat.hold and (line.posted is None or line.posted.version == heartbeat.orders_seen):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(line.changed.wait(), self._hold_seconds(line))
        return line.posted

    def _log_refusal(self, heartbeat: Heartbeat, reason: str) -> None:
        """Once, not at every try of a stranger who does not give up; and seldom, however many they say they are."""
        refusal = (*_who(heartbeat), reason)
        if refusal == self._last_refusal:
            return
        self._last_refusal = refusal
        before = self._seldom.left_out()
        if before is not None:
            who, why = "{} {}/{}".format(*refusal[:3]), printable(reason, _LONGEST_LOGGED)
            more = f" (before this one, {before} other refusals were not logged)" if before else ""
            log.warning("heartbeat of %s refused: %s%s", printable(who, _LONGEST_LOGGED), why, more)

    def _hold_seconds(self, line: Line) -> float:
        least = line.posted.orders.hold_seconds if line.posted else Orders.hold_seconds
        return min(max(least, len(self._lines) / ANSWERS_PER_SECOND), least + LONGEST_MORE_SECONDS)

    def _posted(self, orders: Orders) -> Posted:
        """A decision gives the same orders to all agents of a job, one after the other."""
        if self._newest is None or self._newest.orders is not orders:
            self._newest = Posted.of(orders)
        return self._newest


def _now() -> float:
    return asyncio.get_running_loop().time()


def _read(body: bytes) -> Heartbeat:
    """Raises: codec.WireError, where it is no heartbeat, or none that can be true."""
    heartbeat = codec.decode(Heartbeat, body)
    if reason := doubt(heartbeat):
        raise codec.WireError(reason)
    return heartbeat


def _is_newer(old: Heartbeat | None, new: Heartbeat) -> bool:
    """Two requests of one agent may cross on the way: the older one is answered, but not believed."""
    return old is None or new.sequence > old.sequence


def _matters(old: Heartbeat | None, new: Heartbeat) -> bool:
    """Whether the loop must look at once. Mere steps are seen at its next look."""
    return old is None or _gist(old) != _gist(new)


def _gist(beat: Heartbeat) -> tuple[object, ...]:
    ranks = tuple((rank.phase, rank.unsaved is None) for rank in beat.ranks)
    return beat.state, beat.attempt, beat.roster_digest, beat.exit, beat.stalled, ranks


def _nothing_yet(heartbeat: Heartbeat) -> Posted:
    """For an agent that calls before its job was looked at: go on with what you do."""
    return Posted.of(Orders(WAIT, heartbeat.attempt, "The operator has not looked at the job yet."))


def _who(heartbeat: Heartbeat) -> tuple[str, str, int]:
    return heartbeat.job, heartbeat.role, heartbeat.index


def _bearer(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise RefusedError("no bearer token")
    return token
