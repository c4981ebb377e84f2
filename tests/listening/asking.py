"""Ask the process that serves, in raw bytes, so that a test may send anything."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from dataclasses import dataclass
from pathlib import Path

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Orders

from tests.builders import a_heartbeat
from tests.listening.served import GOOD

PATIENCE_SECONDS = 60.0  # of a socket, so that a test that fails ends
BEAT = codec.encode(dataclasses.replace(a_heartbeat(), pod_uid="the-pod", hold=False))


@dataclass
class Served:
    """The process that serves."""

    port: int
    pid: int
    log: Path
    host: str = "127.0.0.1"

    def connect(self) -> socket.socket:
        """Connect to it."""
        return socket.create_connection((self.host, self.port), PATIENCE_SECONDS)

    def ask(self, head: str, body: bytes = b"") -> int:
        """Send a request on a new connection; return the status of the answer, 0 where it is only closed."""
        with self.connect() as line:
            line.sendall(head.encode() + b"\r\n\r\n" + body)
            answer = line.recv(4096)
        return int(answer.split()[1]) if answer else 0

    def beat(self) -> Orders:
        """Have a true heartbeat answered."""
        with self.connect() as line:
            line.sendall(post(len(BEAT)).encode() + b"\r\n\r\n" + BEAT)
            answer = line.recv(1 << 16)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), answer
        return codec.decode(Orders, body)

    @property
    def connections(self) -> int:
        """How many sockets it has open."""
        found = 0
        for path in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has been closed meanwhile
                found += str(path.readlink()).startswith("socket:")
        return found

    @property
    def kilobytes(self) -> int:
        """How much memory it has."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def post(length: int | None, token: str = GOOD, *more: str) -> str:
    """The head of a heartbeat."""
    lines = [f"POST {names.HEARTBEAT_PATH} HTTP/1.1", "Host: x", *more]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"Content-Length: {length}"] if length is not None else []
    return "\r\n".join(lines)
