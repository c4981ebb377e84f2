"""Bound how many connections a listener has, in all and of one peer, and choose which one is closed for the next.

Until a request has shown a valid token, its connection is a stranger's: their number is bounded, in all and per
address, and the oldest is closed for the next one. So idle connections and slow senders keep out no client that sends
its request at once.
"""

import resource
from dataclasses import dataclass
from typing import Protocol

CHUNK = 16 << 10  # bytes that are read at once
ACCEPTED_AT_ONCE = 100  # connections, before those that were accepted are read
QUEUED = 4096  # connections that wait in the kernel; it takes no more than net.core.somaxconn
_SPARE_FILES = 256  # descriptors that are left for everything but these connections


@dataclass(frozen=True)
class Limits:
    """Hold the bounds of one listener. Times are in seconds."""

    strangers: int = 1024  # without a valid token yet. Twice ACCEPTED_AT_ONCE or less would close unread ones
    strangers_of_address: int = 512
    of_speaker: int = 4  # connections of one speaker with a valid token; an agent has two
    head_bytes: int = 8 << 10
    head_seconds: float = 5.0
    idle_seconds: float = 60.0  # between the answer to one request and the head of the next
    body_seconds: float = 10.0
    bodies_bytes: int = 32 << 20  # of large bodies that are being received, in all
    unread_seconds: float = 10.0  # a peer may leave an answer unread for so long
    unread_bytes: int = 64 << 20  # of answers that peers do not read, in all
    drained_bytes: int = 64 << 10  # read of a refused body, so that its sender sees the refusal
    drain_seconds: float = 1.0


class Counted(Protocol):
    """A connection as `Connections` counts it has these members."""

    address: str
    speaker: str | None

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes of answers its peer has not read."""

    def abort(self) -> None:
        """Close it now, even during a request."""


class Connections:
    """Hold all connections of one listener, and count them by peer."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.scratch = memoryview(bytearray(CHUNK))  # bytes are copied out of it before another connection reads
        self.bodies_bytes = 0
        self._strangers: dict[Counted, None] = {}  # oldest first
        self._of_address: dict[str, dict[Counted, None]] = {}
        self._of_speaker: dict[str, dict[Counted, None]] = {}
        self._unread: dict[Counted, None] = {}  # oldest first
        self._open: set[Counted] = set()
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = (most if most != resource.RLIM_INFINITY else 1 << 20) - _SPARE_FILES

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: Counted) -> None:
        """Count a new connection; close the oldest stranger where there are too many."""
        self._open.add(connection)
        self._strangers[connection] = None
        same = self._of_address.setdefault(connection.address, {})
        same[connection] = None
        if len(same) > self.limits.strangers_of_address:
            next(iter(same)).abort()
        if len(self._strangers) > self.limits.strangers or len(self._open) > self._most:
            next(iter(self._strangers)).abort()

    def proven(self, connection: Counted, speaker: str) -> None:
        """Count the connection as this speaker's; close the speaker's oldest where it has too many."""
        self.closed(connection)
        self._open.add(connection)
        if speaker:
            same = self._of_speaker.setdefault(speaker, {})
            same[connection] = None
            if len(same) > self.limits.of_speaker:
                next(iter(same)).abort()

    def unread(self, connection: Counted) -> None:
        """Note that its peer does not read; close those that wait longest where unread answers hold too much memory."""
        self._unread[connection] = None
        while self._unread and sum(one.unread_bytes for one in self._unread) > self.limits.unread_bytes:
            next(iter(self._unread)).abort()

    def read(self, connection: Counted) -> None:
        """Note that its peer has read."""
        self._unread.pop(connection, None)

    def closed(self, connection: Counted) -> None:
        """Count the connection no more."""
        self._open.discard(connection)
        self._strangers.pop(connection, None)
        _drop(self._of_address, connection.address, connection)
        self._unread.pop(connection, None)
        if connection.speaker:
            _drop(self._of_speaker, connection.speaker, connection)

    def close_all(self) -> None:
        """Close all connections at once."""
        for connection in [*self._open]:
            connection.abort()


def _drop(groups: dict[str, dict[Counted, None]], name: str, connection: Counted) -> None:
    group = groups.get(name, {})
    group.pop(connection, None)
    if not group:
        groups.pop(name, None)
