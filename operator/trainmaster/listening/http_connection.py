"""Handle one connection of a listener: frame requests, apply time limits, and pass everything else to aiohttp.

aiohttp sees a connection only when the head of a request is complete, one request at a time, and the body only when the
handler asks for it (`take_body`).
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus

from aiohttp import web

from trainmaster.listening.limits import CHUNK, Connections

_HEAD_ENDS = b"\r\n\r\n"


class _RequestState(StrEnum):
    HEAD = "a request's head is awaited"
    JUDGED = "the head is with the handler, which has not asked for the body"
    BODY = "the body is being received"
    ANSWERED = "the whole request is with the handler"
    DRAINED = "the request was refused, and the connection will be closed"


class HttpConnection(asyncio.BufferedProtocol):
    """A connection frames requests, applies time limits, and passes everything else to aiohttp's own protocol."""

    def __init__(self, connections: Connections, serve: Callable[[], asyncio.Protocol]) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._serve = serve
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._state = _RequestState.HEAD
        self._held = b""  # read, and not yet fed to aiohttp
        self._missing = 0  # of the body
        self._drained = 0
        self._counted = 0  # bytes of the body that `bodies_bytes` counts
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.address = ""
        self.speaker: str | None = None  # None: not proven yet; empty where many share one token

    # --- for the handler ---

    def prove(self, speaker: str) -> None:
        """Set the speaker of the connection: a valid token was sent. Empty where many share one token."""
        if speaker != self.speaker and self._transport and not self._transport.is_closing():
            self._connections.proven(self, speaker)
            self.speaker = speaker

    def take_body(self, length: int) -> bool:
        """Let the body in; return False where large bodies of others take all the room at this moment."""
        if self._state is not _RequestState.JUDGED:
            return True
        large = length if length > CHUNK else 0
        if self._connections.bodies_bytes + large > self._limits.bodies_bytes:
            return False
        self._connections.bodies_bytes += large
        self._state, self._missing, self._counted = _RequestState.BODY, length, large
        self._expire_in(self._limits.body_seconds)
        held, self._held = self._held, b""
        self._take_of_body(held)
        self._resume()
        return True

    def answered(self, keep: bool) -> None:
        """Await the next request; or close, after reading a little of what is left of a refused one."""
        self._release()
        if keep and self._state is _RequestState.ANSWERED:
            self._state = _RequestState.HEAD
            self._expire_in(self._limits.idle_seconds)
        else:
            self._state, self._held = _RequestState.DRAINED, b""
            self._expire_in(self._limits.drain_seconds)
            self._resume()

    # --- for `Connections` ---

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes of answers its peer has not read."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def abort(self) -> None:
        """Close it now, even during a request."""
        self._connections.closed(self)
        if self._transport:
            self._transport.abort()

    # --- for asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = transport  # type: ignore[assignment]  # sockets have nothing else
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self._expire_in(self._limits.head_seconds)
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._release()
        for timer in (self._deadline, self._unread):
            if timer:
                timer.cancel()
        self._connections.closed(self)
        self._transport = None
        if self._inner:
            self._inner.connection_lost(exc)

    def get_buffer(self, _: int) -> memoryview:
        """Return where to put what comes next."""
        return self._connections.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        data = bytes(self._connections.scratch[:nbytes])
        match self._state:
            case _RequestState.HEAD:
                self._take_of_head(data)
            case _RequestState.BODY:
                self._take_of_body(data)
            case _RequestState.JUDGED:
                self._held += data
                if len(self._held) > CHUNK and self._transport:
                    self._transport.pause_reading()
            case _RequestState.DRAINED if self._drained < self._limits.drained_bytes:
                self._drained += nbytes
            case _:
                self.abort()  # a second request before the answer to the first, or it does not stop sending

    def eof_received(self) -> bool:
        """Close: a peer that sends no more does not wait for orders."""
        return False

    def pause_writing(self) -> None:
        """Start the time that the peer has to read."""
        self._unread = asyncio.get_running_loop().call_later(self._limits.unread_seconds, self.abort)
        if self._inner:
            self._inner.pause_writing()
        self._connections.unread(self)

    def resume_writing(self) -> None:
        """Stop that time: the peer has read."""
        if self._unread:
            self._unread.cancel()
        self._connections.read(self)
        if self._inner:
            self._inner.resume_writing()

    # --- internals ---

    def _take_of_head(self, data: bytes) -> None:
        if not self._held and self._inner:
            self._expire_in(self._limits.head_seconds)  # it was idle, and sends again
        self._held += data
        end = self._held.find(_HEAD_ENDS)
        length = end + len(_HEAD_ENDS) if end >= 0 else len(self._held)
        if length > self._limits.head_bytes:
            if self._transport:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._transport.write(f"HTTP/1.1 {status} {status.phrase}\r\nConnection: close\r\n\r\n".encode())
                self._transport.close()
        elif end >= 0:
            head, self._held = self._held[:length], self._held[length:]
            self._state = _RequestState.JUDGED
            self._feed(head)

    def _take_of_body(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing < 0:
            self.abort()  # a second request before the answer to the first
            return
        if data:
            self._feed(data)
        if not self._missing:
            self._state = _RequestState.ANSWERED
            self._expire_in(None)

    def _feed(self, data: bytes) -> None:
        if self._inner is None and self._transport:
            self._inner = self._serve()
            self._inner.connection_made(self._transport)
        if self._inner:
            self._inner.data_received(data)

    def _release(self) -> None:
        self._connections.bodies_bytes -= self._counted
        self._counted = 0

    def _resume(self) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def _expire_in(self, seconds: float | None) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort) if seconds is not None else None


def connection_of(request: web.Request) -> HttpConnection | None:
    """Return the connection that a request came by; None where it is served without limits, or is gone."""
    protocol = request.transport.get_protocol() if request.transport else None
    return protocol if isinstance(protocol, HttpConnection) else None
