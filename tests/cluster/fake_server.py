"""A server that misbehaves on demand: what no real API server can be asked to do."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import kopf
from aiohttp import web
from trainmaster.cluster.api_connection import ApiConnection
from trainmaster.cluster.client import Client

Document = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[Client]:
    """A client of a server that answers everything with `handler`."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    loaded = itertools.count(1)
    server = f"http://127.0.0.1:{port}"
    client = Client(ApiConnection(lambda: kopf.ConnectionInfo(server=server, token=f"token-{next(loaded)}")))
    await client.open()
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


def refusal(status: int, reason: str = "", headers: dict[str, str] | None = None) -> web.Response:
    """The API server's own form of an error."""
    body = {"kind": "Status", "code": status, "reason": reason, "message": f"no: {reason}"}
    return web.json_response(body, status=status, headers=headers)


class Watch:
    """The server's end of one watch."""

    def __init__(self, request: web.Request) -> None:
        self.version = request.query["resourceVersion"]
        self._request = request
        self._response = web.StreamResponse(headers={"Content-Type": "application/json"})

    async def send(self, *events: tuple[str, Document]) -> web.StreamResponse:
        """Tell events; more may follow."""
        if not self._response.prepared:
            await self._response.prepare(self._request)
        for kind, document in events:
            await self._response.write(json.dumps({"type": kind, "object": document}).encode() + b"\n")
        return self._response

    async def silence(self) -> web.StreamResponse:
        """Say nothing any more, and keep the line open."""
        await self.send()
        await asyncio.Event().wait()
        return self._response
