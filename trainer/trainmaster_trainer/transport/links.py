"""Send requests to peers: one connection per peer, made when it is first needed and again when it broke.

A peer that is away is waited for as long as the asker has patience; where the roster names a new address meanwhile,
that one is called. A request may therefore arrive twice: handling it twice must have the same effect as once.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from torch import Tensor

from trainmaster_trainer.transport import handshake
from trainmaster_trainer.transport.connection import CALLER, Connection
from trainmaster_trainer.transport.directory import Directory, RankAddress
from trainmaster_trainer.transport.frame import Message, OtherTensorsError
from trainmaster_trainer.transport.handshake import Identity
from trainmaster_trainer.transport.service import ERROR
from trainmaster_trainer.transport.stream import close, prepare, set_timeout

log = logging.getLogger(__name__)
CONNECT_SECONDS = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
_SLOWEST = 100e6  # bytes per second


def seconds_for(size: int) -> float:
    """Return how long a peer may be silent while it puts together so many bytes."""
    return size / _SLOWEST


class PeerLostError(ConnectionError):
    """PeerLostError says that a peer did not answer for as long as the asker had patience."""


class PeerRefusedError(Exception):
    """PeerRefusedError says that the peer refused a request; the text is the peer's."""


@dataclass
class Question:
    """Question is what to ask a peer, where its answer's tensors go, and what to do until the answer comes.

    `meanwhile` is called again each time the peer has to be asked again, and must not raise.
    """

    message: Message
    into: Sequence[Tensor] = ()
    meanwhile: Callable[[], None] | None = None


class Link:
    """Link sends requests to one peer, one at a time. Threads that share it take turns."""

    def __init__(
        self, identity: Identity, directory: Directory, rank: int, moved: Callable[[], None], shares_memory: bool
    ) -> None:
        self._identity = identity
        self._directory = directory
        self._rank = rank
        self._moved = moved
        self._shares_memory = shares_memory
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._place: RankAddress | None = None

    def ask(
        self, question: Question, patience: float, silence: float = 0, until: threading.Event | None = None
    ) -> Message:
        """Return the peer's answer. `silence`: seconds for which a connected peer may send nothing; 0: for ever.

        Raises:
            PeerLostError: there was none in `patience` seconds; or the peer is away, and `until` is set.
            PeerRefusedError: the peer refused.
            OtherTensorsError: its tensors do not fit where the answer's should go.
        """
        deadline = time.monotonic() + patience
        pause = _FIRST_PAUSE
        with self._lock:
            while True:
                try:
                    return self._once(question, silence)
                except OtherTensorsError:
                    self.close()
                    raise
                except OSError as error:
                    self.close()
                    if time.monotonic() + pause > deadline or (until and until.is_set()):
                        raise PeerLostError(f"rank {self._rank} does not answer: {error}") from None
                self._moved()  # the caller may want to know that we wait
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(self, question: Question, silence: float) -> Message:
        connection = self._connected()
        connection.set_timeout(silence)
        connection.send(question.message)
        if question.meanwhile is not None:
            question.meanwhile()
        answer = connection.receive(question.into)
        if answer.name == ERROR:
            raise PeerRefusedError(answer.values["text"])
        return answer

    def _connected(self) -> Connection:
        place = self._directory.place(self._rank)
        if self._connection is not None and place == self._place:
            return self._connection
        self.close()  # the roster names another process: what we hold is its predecessor's
        return self._connect(place)

    def _connect(self, place: RankAddress | None) -> Connection:
        if place is None:
            raise ConnectionRefusedError("the roster names no address of it")
        connected = socket.create_connection((place.host, place.port), timeout=CONNECT_SECONDS)
        try:
            prepare(connected)
            set_timeout(connected, CONNECT_SECONDS)
            connection = Connection(connected, handshake.call(connected, self._identity, self._rank), CALLER)
            if self._shares_memory:
                connection.offer_memory()
        except OSError:
            close(connected)
            raise
        self._connection, self._place = connection, place
        return connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Links:
    """Links holds one link per peer, and asks many peers at once."""

    def __init__(
        self,
        identity: Identity,
        directory: Directory,
        waiting: Callable[[], None] = lambda: None,
        *,
        shares_memory: bool = True,
    ) -> None:
        self._identity = identity
        self.directory = directory
        self._waiting = waiting
        self._shares_memory = shares_memory
        self._lock = threading.Lock()
        self._links: dict[int, Link] = {}
        self._threads = ThreadPoolExecutor(max_workers=64, thread_name_prefix="ask")

    def to(self, rank: int) -> Link:
        """Return the link to a rank."""
        with self._lock:
            if rank not in self._links:
                self._links[rank] = Link(self._identity, self.directory, rank, self._waiting, self._shares_memory)
            return self._links[rank]

    def ask(
        self, rank: int, message: Message, patience: float, silence: float = 0, until: threading.Event | None = None
    ) -> Message:
        """Ask one rank; return its answer. Raises as `Link.ask` does."""
        return self.to(rank).ask(Question(message), patience, silence, until)

    def ask_all(
        self, questions: Mapping[int, Question], patience: float, until: threading.Event | None = None
    ) -> dict[int, Message]:
        """Ask several ranks at the same time; return the answers when all are there.

        Raises:
            PeerLostError: one of them did not answer.
            PeerRefusedError: one of them refused.
        """
        (first, question), *rest = questions.items()
        others = {
            rank: self._threads.submit(self.to(rank).ask, other, patience, 0, until) for rank, other in rest
        }  # the first is asked from here: with one server, no thread is woken
        answers = {first: self.to(first).ask(question, patience, 0, until)}
        return answers | {rank: future.result() for rank, future in others.items()}

    def close(self) -> None:
        """Close all connections."""
        for link in list(self._links.values()):
            link.close()
        self._threads.shutdown(wait=False)
