"""Exchange JSON lines over a unix socket, with open descriptors beside them (SCM_RIGHTS).

Both ends are ours: `parent` (agent) and `warm`. A line says how many of the descriptors that came are its own,
so it does not matter how the kernel cuts the stream.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

_CHUNK = 1 << 16
_BESIDE = socket.CMSG_SPACE(64 * array.array("i").itemsize)
_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC


class Received(NamedTuple):
    """Received is one message and its descriptors, which the receiver has to close."""

    message: Dict[str, Any]
    descriptors: List[int]


class Channel:
    """Channel is one end of a connection between two processes."""

    def __init__(self, connection: socket.socket, patience: float = 0.0) -> None:
        """Take over a socket. `patience`: seconds for the other end to make room for a message; 0: no limit."""
        self._socket = connection
        longest = struct.pack("ll", *divmod(int(patience * 1e6), 10**6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, longest)
        self._bytes = b""
        self._descriptors: List[int] = []

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, message: Dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one message. The descriptors stay open here.

        Raises:
            BlockingIOError: the other end does not read. There may be half a message now, so this was the last one.
            OSError: the other end has gone.
        """
        try:
            data = json.dumps({**message, "descriptors": len(descriptors)}).encode() + b"\n"
            sent = socket.send_fds(self._socket, [data], list(descriptors)) if descriptors else 0
            if sent < len(data):  # even a send of nothing fails where the other end has read and gone
                self._socket.sendall(data[sent:])
        except BlockingIOError:
            self._socket.shutdown(socket.SHUT_WR)
            raise

    def receive(self) -> List[Received]:
        """Return all messages that are there by now, without waiting.

        Raises:
            EOFError: the other end has gone, and no whole message is left.
        """
        closed = not self._fill()
        lines = self._bytes.split(b"\n")
        self._bytes = lines.pop()
        if closed and not lines:
            raise EOFError
        received = []
        for line in lines:
            message = json.loads(line)
            count = message.pop("descriptors")
            taken, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            received.append(Received(message, taken))
        return received

    def wait(self) -> List[Received]:
        """Wait until something has come, then return as `receive` does. It is for a process with nothing else to do."""
        select.select([self._socket], [], [])
        return self.receive()

    def close(self) -> None:
        """Close this end, and the descriptors that came and were not taken."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._socket.close()

    def _fill(self) -> bool:
        """Read until nothing is left; return False at the end of the stream."""
        while True:
            try:
                # Not socket.recv_fds: it forgets its flags (CPython 3.9 to 3.11).
                data, beside, _, _ = self._socket.recvmsg(_CHUNK, _BESIDE, _FLAGS)
            except BlockingIOError:
                return True
            except OSError:
                return False
            self._descriptors += _descriptors_in(beside)
            self._bytes += data
            if not data:
                return False


def _descriptors_in(beside: List[Tuple[int, int, bytes]]) -> List[int]:
    found = array.array("i")
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()
