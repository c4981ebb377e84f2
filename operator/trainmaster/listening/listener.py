"""Serve an aiohttp application behind limits, on a TCP port or at a unix socket."""

import asyncio
import socket
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster.listening.http_connection import HttpConnection, connection_of
from trainmaster.listening.limits import ACCEPTED_AT_ONCE, QUEUED, Connections, Limits


class Listener:
    """A listener serves an application behind limits. Call `start` or `start_at`, then `stop`."""

    def __init__(
        self, application: web.Application, limits: Limits | None = None, goodbye_seconds: float = 0.3
    ) -> None:
        limits = limits or Limits()
        application.middlewares.insert(0, _framed)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=goodbye_seconds,
            keepalive_timeout=2 * limits.idle_seconds,  # never reached: Connection has the time limits
            lingering_time=limits.drain_seconds,
            auto_decompress=False,
            handler_cancellation=True,
        )
        self._server: asyncio.Server | None = None
        self.connections = Connections(limits)

    async def start(self, host: str, port: int) -> int:
        """Listen on a TCP port, 0 for any that is free; return its number."""
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, host, port, reuse_address=True, backlog=ACCEPTED_AT_ONCE
        )
        _lengthen_queues(self._server.sockets)
        return int(self._server.sockets[0].getsockname()[1])

    async def start_at(self, path: Path) -> None:
        """Listen at a unix socket that only its own user may connect to."""
        await self._runner.setup()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(str(path))
            path.chmod(0o600)  # noqa: ASYNC240  in memory
            self._server = await asyncio.get_running_loop().create_unix_server(
                self._connection, sock=listening, backlog=ACCEPTED_AT_ONCE
            )
            _lengthen_queues(self._server.sockets)
        except OSError:
            listening.close()
            raise

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        if self._server:
            self._server.close()
        await self._runner.cleanup()
        self.connections.close_all()

    def _connection(self) -> HttpConnection:
        serve = self._runner.server
        assert serve is not None  # noqa: S101  it was set up
        return HttpConnection(self.connections, serve)


def _lengthen_queues(listening: Iterable[socket.socket]) -> None:
    """Let the kernel queue more connections than asyncio accepts at once; asyncio has one number for both.

    A client whose connection finds the queue full sends its first packet again a second later.
    """
    for one in listening:
        with one.dup() as same:  # only a whole socket has listen()
            same.listen(QUEUED)


@web.middleware
async def _framed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Report when a request is answered. After a refusal the connection is closed: the rest of the body is not read."""
    connection, keep = connection_of(request), False
    try:
        response = await handler(request)
        keep = response.status in (HTTPStatus.OK, HTTPStatus.NO_CONTENT)
        if not keep:
            response.force_close()
    except web.HTTPException as refusal:
        refusal.force_close()
        raise
    finally:
        if connection:
            connection.answered(keep)
    return response
