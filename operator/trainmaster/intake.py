"""Receive the heartbeats of agents: one HTTP route, the same on both platforms.

A heartbeat is verified, remembered, and answered with orders: at once when they are new to the agent, else after a
while, without a body. All of it is memory; nothing here writes to an API server or a disk. The token stands in the
header and is judged before the body is read; the size of bodies is bounded here, the number of connections in
`listening`.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import hdrs, web

from trainmaster.core.situation.credible import believed, doubt
from trainmaster.core.states.observed import Replica, silent_after
from trainmaster.listening.http_connection import connection_of
from trainmaster.log_rate import LogRate
from trainmaster.loop import UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire import codec, names
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import Heartbeat, Orders, digest_of
from trainmaster.wire.printable import printable

log = logging.getLogger("trainmaster.intake")


class HeartbeatRefusedError(Exception):
    """Report a heartbeat that is not believed. The text says why; the status is 401 where the token is invalid."""

    def __init__(self, why: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Speaker:
    """A speaker is the owner of a valid token.

    `uid` is that of its pod; empty where all agents share one token. `check` raises RefusedError where a heartbeat
    claims to be another's.
    """

    uid: str
    check: Callable[[Heartbeat], None]


# Checks a bearer token; raises RefusedError, or UnavailableError where it cannot be checked now.
Verify = Callable[[str], Awaitable[Speaker]]


# Agents without news wait for an answer the longer, the more of them there are: at most so many answers a second.
ANSWERS_PER_SECOND = 100.0
# At most this much longer than the orders say. An agent gives a request up 10 s after that.
LONGEST_MORE_SECONDS = 5.0
_LONGEST_LOGGED = 200  # letters of a text from a stranger
# A heartbeat's lists have an entry for each rank of one replica, and no other list is longer.
MOST_ITEMS = 1024
# JSON of more values than this is not parsed at all. A heartbeat of 1,024 ranks has 15,000.
MOST_VALUES = 50_000
# Parsing a larger body blocks all others for a moment, so between two such bodies the others have their turn.
LARGE_BYTES = 16 << 10
# What one speaker may send: bytes a second, and at once. Each request counts as REQUEST_BYTES more, for its time.
SPEAKER_BYTES_PER_SECOND = 32 << 10
SPEAKER_BYTES = 2 << 20
REQUEST_BYTES = 4 << 10


@dataclass(frozen=True)
class Posted:
    """Hold orders as they are sent: made once for all agents of a job."""

    orders: Orders
    version: str
    body: bytes

    @classmethod
    def encoded(cls, orders: Orders) -> "Posted":
        """Return these orders, ready to be sent."""
        body = codec.encode(orders)
        return cls(orders, digest_of(body), body)


@dataclass
class AgentRecord:
    """A record is what is known of one agent: its last heartbeat, and the orders for it."""

    heartbeat: Heartbeat | None = None
    heard: float = 0.0  # when, by the event loop's clock
    hold_seconds: float = 0.0  # for how long its request is held, or was held last: the agent says nothing meanwhile
    posted: Posted | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Allowance:
    """Hold how many bytes a speaker may still send."""

    bytes: float = SPEAKER_BYTES
    since: float = 0.0

    def takes(self, size: int, now: float) -> bool:
        """Return whether it may send so many more bytes, and count them."""
        self.bytes = min(SPEAKER_BYTES, self.bytes + (now - self.since) * SPEAKER_BYTES_PER_SECOND)
        self.since = now
        if size + REQUEST_BYTES > self.bytes:
            return False
        self.bytes -= size + REQUEST_BYTES
        return True


class Intake:
    """Hold all lines, by the uid of the replica."""

    def __init__(self, verify: Verify, on_news: Callable[[Key], None]) -> None:
        self._verify = verify
        self._on_news = on_news
        self._records: dict[str, AgentRecord] = {}
        self._allowances: dict[str, Allowance] = {}
        self._parsing = asyncio.Lock()  # of large bodies
        self._last_refusal: tuple[str, str] | None = None
        self._seldom = LogRate()
        self._newest: Posted | None = None

    def heartbeat(self, uid: str) -> Heartbeat | None:
        """Return the last heartbeat of the replica's agent; None where there is none."""
        record = self._records.get(uid)
        return record.heartbeat if record else None

    def heard(self, replica: Replica) -> Replica:
        """Return the replica with its agent's last heartbeat, and how many seconds ago that was."""
        record = self._records.get(replica.uid)
        if record is None or record.heartbeat is None:
            return replica
        silent = _now() - record.heard
        return dataclasses.replace(
            replica, heartbeat=record.heartbeat, silent_seconds=silent, hold_seconds=record.hold_seconds
        )

    def give_orders(self, uid: str, orders: Orders) -> None:
        """Give the agent its orders at its next heartbeat, or now if it waits for an answer."""
        # A decision gives the same orders to all agents of a job, one after the other.
        if self._newest is None or self._newest.orders is not orders:
            self._newest = Posted.encoded(orders)
        record, posted = self._records.setdefault(uid, AgentRecord()), self._newest
        if record.posted is None or record.posted.version != posted.version:
            record.posted = posted
            record.changed.set()
            record.changed = asyncio.Event()

    def forget(self, uid: str) -> None:
        """Forget a replica that is gone."""
        self._allowances.pop(uid, None)
        record = self._records.pop(uid, None)
        if record:
            record.changed.set()

    def application(self) -> web.Application:
        """Return the application with the route, ready to be served."""
        app = web.Application(client_max_size=names.MAX_HEARTBEAT_BYTES)
        app.router.add_post(names.HEARTBEAT_PATH, self._receive)
        return app

    async def _receive(self, request: web.Request) -> web.Response:
        heartbeat: Heartbeat | None = None
        try:
            speaker = await self._verify(_bearer(request))
            heartbeat = await self._parsed(await self._body(request, speaker))
            speaker.check(heartbeat)
        except codec.WireError as error:
            return web.Response(status=HTTPStatus.BAD_REQUEST, text=str(error))
        except HeartbeatRefusedError as error:
            self._log_refusal(heartbeat or str(request.remote), str(error))
            headers = {hdrs.WWW_AUTHENTICATE: "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else None
            return web.Response(status=error.status, text=str(error), headers=headers)
        except UnavailableError as error:  # neither believed nor refused: the agent asks again
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=str(error))
        posted = await self._answer(heartbeat) or _nothing_yet(heartbeat)
        if heartbeat.takes_204 and heartbeat.orders_seen == posted.version:  # a roster is as large as its group
            return web.Response(status=HTTPStatus.NO_CONTENT)
        return web.Response(body=posted.body, content_type="application/json")

    async def _body(self, request: web.Request, speaker: Speaker) -> bytes:
        """Return the body, of a length that is announced and that its speaker may still send."""
        length, connection = request.content_length, connection_of(request)
        if connection:
            connection.prove(speaker.uid)
        if length is None or hdrs.CONTENT_ENCODING in request.headers:
            raise HeartbeatRefusedError(
                "a heartbeat is sent as it is, with its Content-Length", HTTPStatus.LENGTH_REQUIRED
            )
        if length > names.MAX_HEARTBEAT_BYTES:
            raise HeartbeatRefusedError(
                f"more than {names.MAX_HEARTBEAT_BYTES} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            )
        allowance = self._allowances.setdefault(speaker.uid, Allowance()) if speaker.uid else Allowance()
        if not allowance.takes(length, _now()):
            raise HeartbeatRefusedError("too much at once; ask again in a second", HTTPStatus.TOO_MANY_REQUESTS)
        if connection and not connection.take_body(length):
            raise UnavailableError("too many large heartbeats at once; ask again")
        return await request.read()

    async def _parsed(self, body: bytes) -> Heartbeat:
        if len(body) <= LARGE_BYTES:
            return _read(body)
        async with self._parsing:
            await asyncio.sleep(0)  # requests that were waiting meanwhile come first
            return _read(body)

    async def _answer(self, heartbeat: Heartbeat) -> Posted | None:
        record = self._records.setdefault(heartbeat.pod_uid, AgentRecord())
        if _is_newer(record.heartbeat, heartbeat):
            before, record.heartbeat = record.heartbeat, believed(heartbeat)
            silent, record.heard = _now() - record.heard > silent_after(record.hold_seconds), _now()
            # New steps alone are seen at the loop's next look.
            if silent or before is None or _gist(before) != _gist(record.heartbeat):
                self._on_news(Key(*heartbeat.job.split("/", 1)))
        if heartbeat.hold and (record.posted is None or record.posted.version == heartbeat.orders_seen):
            least = record.posted.orders.hold_seconds if record.posted else Orders.hold_seconds
            record.hold_seconds = min(max(least, len(self._records) / ANSWERS_PER_SECOND), least + LONGEST_MORE_SECONDS)
            began = _now()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(record.changed.wait(), record.hold_seconds)
            record.hold_seconds = max(record.hold_seconds, _now() - began)  # longer where this process is overloaded
        return record.posted

    def _log_refusal(self, who: Heartbeat | str, reason: str) -> None:
        """Log a refusal once, not at every try of the same stranger, and seldom, however many strangers there are.

        `who` is what the heartbeat claims, where it was read, else where it came from.
        """
        if isinstance(who, Heartbeat):
            who = f"{who.job} {who.role}/{who.index}"
        if (who, reason) == self._last_refusal:
            return
        self._last_refusal = (who, reason)
        before = self._seldom.left_out()
        if before is not None:
            who, why = printable(who, _LONGEST_LOGGED), printable(reason, _LONGEST_LOGGED)
            more = f" (before this one, {before} other refusals were not logged)" if before else ""
            log.warning("heartbeat of %s refused: %s%s", who, why, more)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _read(body: bytes) -> Heartbeat:
    """Return the heartbeat in a body.

    Raises:
        codec.WireError: it is no heartbeat, or none that can be true.
    """
    if body.count(b",") > MOST_VALUES:  # how deep values may be nested is bounded by the parser
        raise codec.WireError(f"Heartbeat: more than {MOST_VALUES} values")
    heartbeat = codec.decode(Heartbeat, body, MOST_ITEMS)
    if reason := doubt(heartbeat):
        raise codec.WireError(reason)
    return heartbeat


def _is_newer(old: Heartbeat | None, new: Heartbeat) -> bool:
    """Return whether the heartbeat is newer: requests may cross, and the older one is answered, but not stored."""
    return old is None or new.sequence > old.sequence


def _gist(beat: Heartbeat) -> tuple[object, ...]:
    ranks = tuple((rank.phase, rank.unsaved is None) for rank in beat.ranks)
    away = tuple(sorted(beat.trackers))  # what they say varies; the first word of one may be the last before the end
    return beat.state, beat.attempt, beat.roster_digest, beat.exit, beat.stalled, beat.good_end, ranks, away


def _nothing_yet(heartbeat: Heartbeat) -> Posted:
    """Return orders for an agent that reports before its job was looked at: to go on as it is."""
    return Posted.encoded(Orders(Verb.WAIT, heartbeat.attempt, "The operator has not looked at the job yet."))


def _bearer(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise HeartbeatRefusedError("no bearer token", HTTPStatus.UNAUTHORIZED)
    return token
