"""Requests to the API server: plain JSON over one aiohttp session, many in flight, with typed errors.

Called by `informer`, `platform`, `reporting` and `tokens`. Knows HTTP and Kubernetes' own error bodies, and nothing
of TrainingJobs.
"""

import json
import logging
import random
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from trainmaster.cluster import nesting
from trainmaster.cluster.connection import Connection
from trainmaster.cluster.throttle import Throttle
from trainmaster.loop import UnavailableError

log = logging.getLogger("trainmaster.client")

Document = dict[str, Any]

JSON = "application/json"
ACCEPT = f"{JSON}, */*"  # the key set has a media type of its own
JSON_PATCH = "application/json-patch+json"
REQUEST_SECONDS = 30.0
# Short: on the way to a server that is just coming back, a packet may get lost, and the next try succeeds at once.
CONNECT_SECONDS = 5.0
TRIES_WHEN_BUSY = 5
LONGEST_PAUSE_SECONDS = 30.0
# A watch is told something (a bookmark, if nothing else) every minute or two. Silence for longer is a dead server.
SILENCE_SECONDS = 150.0
# A dead line is found sooner, by TCP itself: after this time without a sign of the other end.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4, socket.TCP_USER_TIMEOUT: 30_000}
MOST_CAUSES = 50  # so many fields that are wrong are looked at
NOT_LEADING = "another operator may lead by now"
_NOT_NOW = (HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class Cause(NamedTuple):
    """One field of an object that the API server does not take, and why."""

    field: str
    reason: str
    message: str


class AnswerError(Exception):
    """The API server answered that it did not do what was asked, and why."""

    def __init__(self, what: str, status: int, reason: str, message: str, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(f"{what}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes


class TooLargeError(Exception):
    """The answer has more bytes than were asked for at most."""


class RefusalError(AnswerError):
    """The API server understood the request and said no (4xx)."""


class BrokenError(AnswerError, UnavailableError):
    """The API server itself says what is broken, in it or behind it (5xx), for example a webhook that nobody serves."""


class Client:
    """One API server. `open` before use, `close` after it. Nothing is written while `may_write` says no.

    A server that is busy is left alone for as long as it asks, but no longer than `longest_pause` seconds.
    """

    def __init__(
        self,
        connection: Connection,
        agent: str = "trainmaster-operator",
        may_write: Callable[[], bool] = lambda: True,
        longest_pause: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        self._connection = connection
        self._agent = agent
        self._may_write = may_write
        self._longest_pause = longest_pause
        self._session: aiohttp.ClientSession | None = None
        self.throttle = Throttle()

    async def open(self) -> None:
        """Make the session; connects to nothing yet."""
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self._connection.ssl_context(), keepalive_timeout=60, socket_factory=_socket
        )
        self._session = aiohttp.ClientSession(connector=connector, headers={"User-Agent": self._agent})

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session:
            await self._session.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None, most: int | None = None) -> Document:
        """Read one object or a list, of at most so many bytes.

        Raises:
            TooLargeError: it has more.
        """
        return await self.request("GET", path, params=params, most=most)

    async def post(self, path: str, body: Document) -> Document:
        """Create an object."""
        return await self.request("POST", path, body, {"fieldManager": "trainmaster"})

    async def json_patch(self, path: str, operations: list[Document]) -> Document:
        """Change an object by RFC 6902."""
        return await self.request("PATCH", path, operations, {"fieldManager": "trainmaster"}, JSON_PATCH)

    async def delete(self, path: str, uid: str, **options: Any) -> Document:
        """Delete the object if it is still the one with this uid."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}, **options}
        return await self.request("DELETE", path, body)

    async def request(
        self,
        method: str,
        path: str,
        body: Document | list[Document] | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        *,
        most: int | None = None,
    ) -> Document:
        """One request and its answer.

        Raises:
            RefusalError: the server said no.
            BrokenError: the server said what is broken.
            UnavailableError: no answer, or not now.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(TRIES_WHEN_BUSY):
            async with self.throttle.slot():
                status, answer, pause = await self._exchange(method, path, data, params, content_type, most=most)
            if status == HTTPStatus.TOO_MANY_REQUESTS:
                self.throttle.too_many(pause)
            elif status == HTTPStatus.UNAUTHORIZED and not attempt:
                self._connection.refresh()
            else:
                self.throttle.went_well()
                return _result(status, answer, f"{method} {path}")
        raise UnavailableError(f"{method} {path}: {_message(answer) or status}")

    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Document]:
        """The events of a watch until the server ends it.

        Raises:
            RefusalError: the server said no, for example 410 for a version that is too old.
            UnavailableError: the line broke, or was silent for too long.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        try:
            async with self._open_session().get(
                self._connection.server + path, params=params, headers=self._connection.headers(), timeout=timeout
            ) as response:
                if response.status != HTTPStatus.OK:
                    self._note_credentials(response.status)
                    _result(response.status, _parse(await response.read()), f"WATCH {path}")
                async for line in _lines(response.content):
                    yield nesting.parse(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnavailableError(f"watching {path}: {str(error) or type(error).__name__}") from error

    async def _exchange(
        self,
        method: str,
        path: str,
        data: bytes | None,
        params: Mapping[str, str] | None,
        content_type: str,
        *,
        most: int | None,
    ) -> tuple[int, Document, float]:
        headers = {**self._connection.headers(), "Content-Type": content_type, "Accept": ACCEPT}
        if data is not None and not self._may_write():
            raise UnavailableError(f"{method} {path}: {NOT_LEADING}")
        try:
            async with self._open_session().request(
                method,
                self._connection.server + path,
                data=None if data is None else _FencedBody(data, self._may_write),
                params=params,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
            ) as response:
                pause = _pause(response.headers.get("Retry-After"), self._longest_pause)
                return response.status, _parse(await _content(response, most)), pause
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{method} {path}: {str(error) or type(error).__name__}") from error

    def _note_credentials(self, status: int) -> None:
        if status == HTTPStatus.UNAUTHORIZED:
            self._connection.refresh()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is not open")
        return self._session


class _FencedBody(aiohttp.BytesPayload):
    """A body that looks once more before it leaves: a connection takes time, and so may a process that was stopped.

    Without its body, the API server does nothing with a request.
    """

    def __init__(self, data: bytes, may_write: Callable[[], bool]) -> None:
        super().__init__(data)
        self._may_write = may_write

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """As aiohttp calls it, at every try."""
        if not self._may_write():
            raise UnavailableError(NOT_LEADING)
        await super().write_with_length(writer, content_length)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """One that notices when the other end is gone, though nobody said goodbye: a lost node, a firewall."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


async def _content(response: aiohttp.ClientResponse, most: int | None) -> bytes:
    if most is None:
        return await response.read()
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > most:
            raise TooLargeError
    return bytes(content)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own reading by lines has a limit, and pods can be large."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _result(status: int, answer: Document, what: str) -> Document:
    if status < HTTPStatus.BAD_REQUEST:
        return answer
    reason = str(answer.get("reason", ""))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and answer.get("kind") == "Status" and _message(answer):
        raise BrokenError(what, status, reason, _message(answer))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _NOT_NOW:
        raise UnavailableError(f"{what}: {status} {_message(answer)}")
    raise RefusalError(what, status, reason, _message(answer), _causes(answer))


def _parse(content: bytes) -> Document:
    """Every answer of an API server is an object; what is none came from something between."""
    try:
        plain = nesting.parse(content)
    except ValueError:
        plain = {"message": content[:300].decode(errors="replace")}
    return plain if isinstance(plain, dict) else {"message": str(plain)[:300]}


def _causes(answer: Document) -> tuple[Cause, ...]:
    """Return the fields that the answer names, as far as it is shaped as Kubernetes shapes it."""
    details = answer.get("details")
    listed = details.get("causes") if isinstance(details, dict) else None
    told = [one for one in listed[:MOST_CAUSES] if isinstance(one, dict)] if isinstance(listed, list) else []
    return tuple(Cause(*(str(one.get(key, "")) for key in ("field", "reason", "message"))) for one in told)


def _message(answer: Document) -> str:
    return str(answer.get("message", ""))


def _pause(retry_after: str | None, longest: float) -> float:
    """Seconds, never the same for two requests, so that they do not come back together."""
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 1.0
    return min(longest, seconds) * random.uniform(0.8, 1.2)  # noqa: S311  not for secrets
