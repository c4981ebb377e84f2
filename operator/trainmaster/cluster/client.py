"""Send requests to the API server: JSON over one aiohttp session, many at once, with typed errors.

It knows HTTP and Kubernetes' error bodies, and nothing of TrainingJobs.
"""

import json
import logging
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from trainmaster.cluster import nesting
from trainmaster.cluster.api_connection import ApiConnection
from trainmaster.cluster.throttle import Throttle
from trainmaster.loop import UnavailableError

log = logging.getLogger("trainmaster.client")

Document = dict[str, Any]

JSON = "application/json"
ACCEPT = f"{JSON}, */*"  # the key set has a media type of its own
JSON_PATCH = "application/json-patch+json"
REQUEST_SECONDS = 30.0
# Short, because a packet to a server that is just starting may get lost, and the next try succeeds at once.
CONNECT_SECONDS = 5.0
TRIES_WHEN_BUSY = 5
LONGEST_PAUSE_SECONDS = 30.0
# A watch gets at least a bookmark every minute or two. If it is silent for longer, the server is dead.
SILENCE_SECONDS = 150.0
# TCP itself finds a dead connection sooner: after this time without a packet from the other end.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4, socket.TCP_USER_TIMEOUT: 30_000}
MOST_CAUSES = 50  # so many wrong fields of an answer are kept
NOT_LEADING = "another operator may lead by now"
_NOT_NOW = (HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class StatusCause(NamedTuple):
    """Hold one field of an object that the API server does not accept, and why."""

    field: str
    reason: str
    message: str


class AnswerError(Exception):
    """The API server answered that it did not do what was asked, and why."""

    def __init__(self, what: str, status: int, reason: str, message: str, causes: tuple[StatusCause, ...] = ()) -> None:
        super().__init__(f"{what}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes


class AnswerTooLargeError(Exception):
    """The answer has more bytes than the caller allowed."""


class RefusalError(AnswerError):
    """The API server understood the request and said no (4xx)."""


class BrokenError(AnswerError, UnavailableError):
    """The API server, or something behind it, is broken (5xx), for example a webhook that does not answer."""


class Client:
    """Send requests to one API server.

    Call `open` before use and `close` after it. Nothing is written while `may_write()` is false.

    A server that says 429 is left alone for as long as it asks, but for at most about `longest_pause` seconds.
    `on_answer` is told of each request: method, path, HTTP status (0: no answer) and seconds.
    """

    def __init__(
        self,
        connection: ApiConnection,
        agent: str = "trainmaster-operator",
        may_write: Callable[[], bool] = lambda: True,
        longest_pause: float = LONGEST_PAUSE_SECONDS,
        on_answer: Callable[[str, str, int, float], None] = lambda *_: None,
    ) -> None:
        self._connection = connection
        self._agent = agent
        self._may_write = may_write
        self._longest_pause = longest_pause
        self._on_answer = on_answer
        self._session: aiohttp.ClientSession | None = None
        self.throttle = Throttle()

    async def open(self) -> None:
        """Create the session. This does not connect yet."""
        headers = {"User-Agent": self._agent}
        self._session = aiohttp.ClientSession(connector=connector_to(self._connection), headers=headers)

    async def close(self) -> None:
        """Close all connections."""
        if self._session:
            await self._session.close()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, most: int | None = None, accept: str = ACCEPT
    ) -> Document:
        """Read one object or a list; `most` is the largest answer in bytes, None is no limit.

        Raises:
            TooLargeError: it has more.
        """
        return await self.request("GET", path, params=params, most=most, accept=accept)

    async def post(self, path: str, body: Document) -> Document:
        """Create an object. A field that the API server does not know is an error: it would be dropped silently."""
        return await self.request("POST", path, body, {"fieldManager": "trainmaster", "fieldValidation": "Strict"})

    async def json_patch(self, path: str, operations: list[Document]) -> Document:
        """Change an object by a JSON patch (RFC 6902)."""
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
        accept: str = ACCEPT,
    ) -> Document:
        """Send a request and return its answer.

        Raises:
            RefusalError: the server said no.
            BrokenError: the server said what is broken.
            UnavailableError: no answer, or not now.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(TRIES_WHEN_BUSY):
            async with self.throttle.slot():
                began = time.monotonic()
                headers = {"Content-Type": content_type, "Accept": accept}
                status, answer, pause = await self._exchange(method, path, data, params, headers, most=most)
            if status == HTTPStatus.TOO_MANY_REQUESTS:
                self.throttle.too_many(pause)
            elif status == HTTPStatus.UNAUTHORIZED and not attempt:
                self._connection.refresh()
            else:
                self.throttle.went_well(time.monotonic() - began)
                return _result(status, answer, f"{method} {path}")
        raise UnavailableError(f"{method} {path}: {_message(answer) or status}")

    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Document]:
        """Yield the events of a watch until the server ends it.

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
                    if response.status == HTTPStatus.UNAUTHORIZED:
                        self._connection.refresh()
                    _result(response.status, _parse(await response.read()), f"WATCH {path}")
                async for line in lines(response.content):
                    yield nesting.parse(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnavailableError(f"watching {path}: {str(error) or type(error).__name__}") from error

    async def _exchange(
        self,
        method: str,
        path: str,
        data: bytes | None,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        *,
        most: int | None,
    ) -> tuple[int, Document, float]:
        if data is not None and not self._may_write():
            raise UnavailableError(f"{method} {path}: {NOT_LEADING}")
        began, status = time.monotonic(), 0
        try:
            async with self._open_session().request(
                method,
                self._connection.server + path,
                data=None if data is None else _FencedBody(data, self._may_write),
                params=params,
                headers={**self._connection.headers(), **headers},
                timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
            ) as response:
                status = response.status
                # The pause varies by 20 %, so that requests do not all come back together.
                retry_after = response.headers.get("Retry-After")
                seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 1.0
                pause = min(self._longest_pause, seconds) * random.uniform(0.8, 1.2)  # noqa: S311  not for secrets
                return status, _parse(await _content(response, most)), pause
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        finally:
            self._on_answer(method, path, status, time.monotonic() - began)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is not open")
        return self._session


class _FencedBody(aiohttp.BytesPayload):
    """A request body that checks once more that this operator may write, just before it is sent.

    Connecting takes time, and the process may have been stopped meanwhile. Without the body, the API server does
    nothing with a request.
    """

    def __init__(self, data: bytes, may_write: Callable[[], bool]) -> None:
        super().__init__(data)
        self._may_write = may_write

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the body, or raise UnavailableError if this operator may not write. aiohttp calls this at each try."""
        if not self._may_write():
            raise UnavailableError(NOT_LEADING)
        await super().write_with_length(writer, content_length)


def connector_to(connection: ApiConnection) -> aiohttp.TCPConnector:
    """Return a pool of connections to the API server, as many as are asked for."""
    return aiohttp.TCPConnector(limit=0, ssl=connection.ssl_context(), keepalive_timeout=60, socket_factory=_socket)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket with TCP keepalive, which notices a peer that is gone without a FIN: a lost node, a firewall."""
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
            raise AnswerTooLargeError
    return bytes(content)


async def lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length. aiohttp's own reading by lines has a limit, and pods can be large."""
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
    """Return the answer as an object. Text that is no JSON object comes from a proxy and becomes its `message`."""
    try:
        plain = nesting.parse(content)
    except ValueError:
        plain = {"message": content[:300].decode(errors="replace")}
    return plain if isinstance(plain, dict) else {"message": str(plain)[:300]}


def _causes(answer: Document) -> tuple[StatusCause, ...]:
    """Return the fields that the answer names; parts of another shape than Kubernetes' own are left out."""
    details = answer.get("details")
    listed = details.get("causes") if isinstance(details, dict) else None
    told = [one for one in listed[:MOST_CAUSES] if isinstance(one, dict)] if isinstance(listed, list) else []
    return tuple(StatusCause(*(str(one.get(key, "")) for key in ("field", "reason", "message"))) for one in told)


def _message(answer: Document) -> str:
    return str(answer.get("message", ""))
