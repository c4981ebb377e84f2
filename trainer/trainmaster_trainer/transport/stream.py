"""Move bytes between this process and one peer, in order. Messages (`connection.py`) travel over a stream.

`SocketStream` is the socket itself; `memory_stream.py` has one through memory, for peers of one host.
"""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

from typing_extensions import override

_BUFFERS = 1 << 22
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
_UNACKNOWLEDGED_MS = 15_000
_PIECE = 1 << 30  # what one system call is asked for
_ROOM = 1 << 16  # the least that a kernel buffers for a socket


class Stream(ABC):
    """Stream moves bytes in both directions. One thread may write while another one reads."""

    room: int  # so many bytes are taken without waiting, if the peer has read everything before them

    @abstractmethod
    def set_timeout(self, seconds: float) -> None:
        """Set for how many seconds the other side may be silent, within a message or before one; 0: for ever."""

    @abstractmethod
    def write(self, pieces: Sequence[memoryview]) -> None:
        """Send all pieces.

        Raises:
            OSError: the peer is gone, or takes nothing.
        """

    @abstractmethod
    def read(self, size: int) -> bytes:
        """Return exactly so many bytes.

        Raises:
            OSError: the peer is gone, or silent.
        """

    @abstractmethod
    def fill(self, view: memoryview) -> None:
        """Receive as many bytes as `view` holds, straight into it.

        Raises:
            OSError: the peer is gone, or silent.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the stream, even while another thread waits on it."""


class SocketStream(Stream):
    """SocketStream is a stream over a verified socket.

    The socket blocks, with the kernel's time limits (SO_RCVTIMEO, SO_SNDTIMEO): one system call then takes megabytes
    straight into a tensor's memory, without the interpreter's lock. A Python timeout would poll around every piece.
    """

    room = _ROOM

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._timeout = -1.0

    @override
    def set_timeout(self, seconds: float) -> None:
        if seconds != self._timeout:
            set_timeout(self.socket, seconds)
            self._timeout = seconds

    @override
    def write(self, pieces: Sequence[memoryview]) -> None:
        left = list(pieces)
        while left:
            done = self.socket.sendmsg(left[:64])
            while left and done >= len(left[0]):
                done -= len(left.pop(0))
            if done:
                left[0] = left[0][done:]

    @override
    def read(self, size: int) -> bytes:
        return receive(self.socket, size)

    @override
    def fill(self, view: memoryview) -> None:
        while len(view):
            done = self.socket.recv_into(view, min(len(view), _PIECE), socket.MSG_WAITALL)
            if not done:
                raise ConnectionResetError("the peer went away")
            view = view[done:]

    @override
    def close(self) -> None:
        close(self.socket)


def receive(connected: socket.socket, size: int) -> bytes:
    """Return exactly `size` bytes.

    Raises:
        ConnectionError: the other side went away before.
    """
    data = b""
    while len(data) < size:
        more = connected.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the peer went away")
        data += more
    return data


def set_timeout(connected: socket.socket, seconds: float) -> None:
    """Set the kernel's time limit for one call, in seconds; 0: for ever."""
    value = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def prepare(connected: socket.socket) -> None:
    """Set a socket's options: no delay, big buffers, and to notice within about 15 s that a peer's machine is gone."""
    connected.setblocking(True)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFERS)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFERS)


def close(connected: socket.socket) -> None:
    """Close a socket; a thread that waits on it wakes up with an error."""
    with suppress(OSError):  # it may not be connected any more
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()
