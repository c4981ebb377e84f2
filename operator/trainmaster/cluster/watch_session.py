"""Make the HTTP session that kopf watches through, which no server and no user's object can make harmful.

kopf reads lists and watches with whatever session `on.login` returns. Ours takes care of what kopf does not: it reads
credentials again before they expire, notices connections that are dead, bounds the size of a list's page, survives JSON
that is nested more deeply than Python's parser can, and does not ask a server without pause that ends each watch at
once.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any

import aiohttp
import kopf
from aiohttp.client_middlewares import ClientHandlerType

from trainmaster.cluster import nesting
from trainmaster.cluster.api_connection import ApiConnection
from trainmaster.cluster.client import connector_to, lines
from trainmaster.cluster.informer import MOST_PAGE_BYTES, SHORTEST_WATCH_SECONDS

log = logging.getLogger("trainmaster.operator")


def open_session(connection: ApiConnection, agent: str, settings: kopf.OperatorSettings) -> kopf.AiohttpSession:
    """Return a session for kopf, which closes it."""

    def shrink_pages() -> None:
        settings.watching.chunk_size = max(1, (settings.watching.chunk_size or 1) // 4)

    session = aiohttp.ClientSession(
        connector=connector_to(connection),
        headers={"User-Agent": agent},
        response_class=_response_class(shrink_pages),
        middlewares=(_Middleware(connection),),
    )
    return kopf.AiohttpSession(server=connection.server, aiohttp_session=session)


class _Middleware:
    """Add the credentials of the moment to each request, and pause before those that come too fast."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._asked: dict[str, float] = {}  # when each path was watched last
        self._forbidden: set[str] = set()  # paths that we may not watch

    async def __call__(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        if _is_watch(request.url):
            since = time.monotonic() - self._asked.get(request.url.path, -SHORTEST_WATCH_SECONDS)
            await asyncio.sleep(max(0.0, SHORTEST_WATCH_SECONDS - since))
            self._asked[request.url.path] = time.monotonic()
        request.headers.update(self._connection.headers())
        response = await handler(request)
        self._note(request.url, response.status)
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._connection.refresh()
            await asyncio.sleep(SHORTEST_WATCH_SECONDS)  # kopf logs in again at once, as often as it is refused
        return response

    def _note(self, url: Any, status: int) -> None:
        """Log once that a path may not be watched, and once that it may be again."""
        if _is_watch(url) and (status == HTTPStatus.FORBIDDEN) != (url.path in self._forbidden):
            self._forbidden ^= {url.path}
            verdict = "the operator needs the right to watch trainingjobs" if url.path in self._forbidden else "granted"
            log.warning("watching %s: %s", url.path, verdict)


def _response_class(shrink_pages: Callable[[], None]) -> type[aiohttp.ClientResponse]:
    class Response(aiohttp.ClientResponse):
        """A response whose JSON always fits: into memory, and into Python's parser."""

        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            if _is_watch(self.url) and self.status == HTTPStatus.OK:
                self.content = _ShallowLines(self.content)  # type: ignore[assignment]
            return self

        async def json(self, **_: Any) -> Any:
            """Parse the content. If a page is too large, have kopf ask for smaller ones."""
            content = bytearray()
            async for chunk in self.content.iter_any():
                content += chunk
                if len(content) > MOST_PAGE_BYTES and "limit" in self.url.query:
                    self.close()
                    shrink_pages()
                    raise aiohttp.ClientPayloadError("the page is too large")  # kopf then lists anew
            return nesting.parse(bytes(content))

    return Response


class _ShallowLines:
    """Read a watch's events, each a line, without what is nested too deeply in them."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        """Yield lines. kopf asks for chunks, and finds the lines in them."""
        async for line in lines(self._stream):
            yield nesting.cut(line) + b"\n"


def _is_watch(url: Any) -> bool:
    return "watch" in url.query
