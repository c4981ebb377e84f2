"""Connection: messages over one verified socket.

Sockets block, with the kernel's own time limits (SO_RCVTIMEO, SO_SNDTIMEO): one system call then takes megabytes
straight into a tensor's memory, without the interpreter's lock. A Python timeout would poll around every piece.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from trainmaster_trainer.transport import frame
from trainmaster_trainer.transport.frame import BadFrameError, Message
from trainmaster_trainer.transport.handshake import receive

CALLER, LISTENER = b"caller", b"listener"
MOST_BYTES = 1 << 36
_BUFFERS = 1 << 22
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
_UNACKNOWLEDGED_MS = 15_000
_PIECE = 1 << 30  # what one system call is asked for


class Connection:
    """One side of a socket whose other side proved itself. Not for two threads at once."""

    def __init__(self, connected: socket.socket, key: bytes, side: bytes, most: int = MOST_BYTES) -> None:
        self._socket = connected
        self._key = key
        self._side = side
        self._other = LISTENER if side == CALLER else CALLER
        self._most = most
        self._sent = self._received = 0
        self._timeout = -1.0

    def set_timeout(self, seconds: float) -> None:
        """How long the other side may be silent within a message, or before one. 0 is for ever."""
        if seconds != self._timeout:
            set_timeout(self._socket, seconds)
            self._timeout = seconds

    def send(self, message: Message) -> None:
        """Send a message whole.

        Raises:
            OSError: the peer is gone, or takes nothing.
        """
        head, views = frame.encode(message, self._key, self._side, self._sent)
        self._sent += 1
        pieces = [memoryview(head), *(view for view in views if len(view))]
        while pieces:
            done = self._socket.sendmsg(pieces[:64])
            while pieces and done >= len(pieces[0]):
                done -= len(pieces.pop(0))
            if done:
                pieces[0] = pieces[0][done:]

    def receive(self, into: Sequence[Tensor] = ()) -> Message:
        """The next message. Its tensors lie in `into` where these are given, which must then fit.

        Raises:
            OSError: the peer is gone, silent, or does not talk as agreed.
        """
        data = receive(self._socket, frame.HEADER_SIZE)
        header = frame.decode_header(data, self._received, self._most)
        text = receive(self._socket, header.json_length)
        message, described = frame.decode_text(data, text, self._key, self._other)
        self._received += 1
        if sum(frame.size_of(*tensor) for tensor in described) != header.payload:
            raise BadFrameError("the tensors are not as long as the header says")
        message.tensors = list(into) if into and described else [_empty(*tensor) for tensor in described]
        if [(t.dtype, list(t.shape)) for t in message.tensors] != [(frame.DTYPES[d], s) for d, s in described]:
            raise BadFrameError(f"expected other tensors than {described}")
        for tensor in message.tensors:
            self._fill(frame.memory(tensor))
        return message

    def _fill(self, view: memoryview) -> None:
        while len(view):
            done = self._socket.recv_into(view, min(len(view), _PIECE), socket.MSG_WAITALL)
            if not done:
                raise ConnectionResetError("the peer went away")
            view = view[done:]

    def close(self) -> None:
        """Close it, also under the hands of a thread that waits on it."""
        close(self._socket)


def set_timeout(connected: socket.socket, seconds: float) -> None:
    """The kernel's time limit for one call. 0 is for ever."""
    value = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def prepare(connected: socket.socket) -> None:
    """Small messages at once, big buffers, and a peer whose machine is gone is noticed within about 15 s."""
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


def _empty(dtype: str, shape: list[int]) -> Tensor:
    return torch.empty(shape, dtype=frame.DTYPES[dtype])
