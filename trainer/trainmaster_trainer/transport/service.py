"""Service: the answering side. One thread per peer.

Why threads and not one selector loop: a request may rightly wait (for a step to be complete, for a backup's word), an
optimizer step takes long, and both would hold up everybody in one loop. Receiving, sending and torch's kernels let go
of the interpreter's lock, so the threads do run beside one another. There are as many as there are peers: tens, not
thousands. A stranger costs one thread for `HANDSHAKE_SECONDS` at most, and no more than `STRANGERS` are heard at once;
each further one takes the place of the one that has been silent longest.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable

from trainmaster_trainer.transport import handshake
from trainmaster_trainer.transport.connection import LISTENER, MOST_BYTES, Connection, close, prepare, set_timeout
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.handshake import Caller, Identity

log = logging.getLogger(__name__)
HANDSHAKE_SECONDS = 5.0
STRANGERS = 32
ERROR = "error"
Handler = Callable[[Caller, Message], Message]


class RefusalError(Exception):
    """Raised by a handler to say no: the asker gets the text, and the connection stays."""


class Service:
    """Answers the requests of verified peers with `handler`, each peer in a thread of its own."""

    def __init__(
        self,
        listener: socket.socket,
        identity: Identity,
        handler: Handler,
        gone: Callable[[Caller], None] = lambda _caller: None,
        *,
        failed: Callable[[Exception], None] = lambda _error: None,
        most: int = MOST_BYTES,
    ) -> None:
        self._listener = listener
        self._identity = identity
        self._handler = handler
        self._gone = gone
        self._failed = failed
        self._most = most
        self._lock = threading.Lock()
        self._strangers: deque[socket.socket] = deque()
        self._open: dict[socket.socket, Caller] = {}
        self._closed = False
        listener.setblocking(True)
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    @property
    def present(self) -> set[int]:
        """The ranks that are connected now."""
        with self._lock:
            return {caller.rank for caller in self._open.values()}

    def close(self) -> None:
        """Hear nobody any more."""
        self._closed = True
        close(self._listener)
        with self._lock:
            sockets = [*self._strangers, *self._open]
        for connected in sockets:
            close(connected)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._strangers.append(connected)
                crowded = self._strangers[0] if len(self._strangers) > STRANGERS else None
            if crowded is not None:
                close(crowded)
            threading.Thread(target=self._serve, args=(connected,), name="peer", daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        try:
            prepare(connected)
            set_timeout(connected, HANDSHAKE_SECONDS)
            caller, key = handshake.answer(connected, self._identity)
        except OSError as error:
            log.debug("A caller was not let in: %s", error)
            self._forget(connected)
            return
        with self._lock:
            self._strangers.remove(connected)
            self._open[connected] = caller
        set_timeout(connected, 0)
        try:
            self._converse(Connection(connected, key, LISTENER, self._most), caller)
        except OSError as error:
            log.debug("Rank %d is gone: %s", caller.rank, error)
        except Exception:
            log.exception("Rank %d could not be answered.", caller.rank)
        finally:
            self._forget(connected)
            self._tell(caller)

    def _converse(self, connection: Connection, caller: Caller) -> None:
        while True:
            request = connection.receive()
            try:
                answer = self._handler(caller, request)
            except RefusalError as refusal:
                answer = Message(ERROR, {"text": str(refusal)})
            except Exception as error:
                self._failed(error)  # ours, not the asker's: this process has to end, not the thread alone
                raise
            connection.send(answer)

    def _forget(self, connected: socket.socket) -> None:
        close(connected)
        with self._lock:
            self._open.pop(connected, None)
            if connected in self._strangers:
                self._strangers.remove(connected)

    def _tell(self, caller: Caller) -> None:
        """The last connection of a process is closed."""
        with self._lock:
            still_there = caller in self._open.values()
        if not still_there and not self._closed:
            self._gone(caller)


def inherited_listener(descriptor: int) -> socket.socket:
    """The socket that the agent opened beforehand and handed to this rank."""
    return socket.socket(fileno=descriptor)
