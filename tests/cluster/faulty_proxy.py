"""A proxy before a real API server that misbehaves on demand, only towards those who ask for TrainingJobs."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from trainmaster.wire import names

from tests.ports import free_port

from .apiserver import ApiServer, Document

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class FaultyProxy:
    """Forward all requests; `fault` may answer those for jobs instead (None: forward it as well)."""

    def __init__(self, server: ApiServer) -> None:
        self.port = free_port()
        self.fault: Fault | None = None
        self.watches: set[web.StreamResponse] = set()  # of jobs
        self.asked: list[str] = []  # for jobs
        self._server = server

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FaultyProxy"]:
        """Serve for the length of a `with`."""
        trust = ssl.create_default_context(cafile=str(self._server.certificate))
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, limit=0), auto_decompress=False, read_bufsize=1 << 20
        ) as self._session:
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(application, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            try:
                yield self
            finally:
                await runner.cleanup()

    async def say(self, kind: str, document: Document) -> None:
        """Put an event into every watch of jobs."""
        for watch in list(self.watches):
            await watch.write(json.dumps({"type": kind, "object": document}).encode() + b"\n")

    def break_watches(self) -> None:
        """Cut every connection on which somebody watches jobs."""
        for watch in self.watches:
            assert watch._req
            assert watch._req.transport
            watch._req.transport.abort()
        self.watches.clear()

    async def watched(self) -> None:
        """Wait until somebody watches jobs."""
        async with asyncio.timeout(200):
            while not self.watches:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        of_jobs = request.path.endswith(f"/{names.PLURAL}")
        if of_jobs:
            self.asked.append("watch" if "watch" in request.query else "list")
        if of_jobs and self.fault and (answer := await self.fault(request)) is not None:
            return answer
        headers = {key: value for key, value in request.headers.items() if key not in ("Host", "Content-Length")}
        url = self._server.url + request.path_qs
        async with self._session.request(
            request.method,
            url,
            data=await request.read() or None,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as upstream:
            response = web.StreamResponse(status=upstream.status)
            for name in ("Content-Type", "Content-Encoding"):
                if name in upstream.headers:
                    response.headers[name] = upstream.headers[name]
            await response.prepare(request)
            return await self._copy(upstream, response, is_watch=of_jobs and "watch" in request.query)

    async def _copy(
        self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, *, is_watch: bool
    ) -> web.StreamResponse:
        if is_watch:
            self.watches.add(response)
        try:
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
        finally:
            self.watches.discard(response)
        await response.write_eof()
        return response
