"""Answer the requests of peers, with one thread per peer.

Why threads and not one selector loop: an optimizer step takes long, and a request may rightly wait (for a backup's
answer); both would hold up all peers in one loop. Receiving, sending and torch's kernels let go of the interpreter's
lock, so the threads do run beside one another. There are as many as there are peers: tens, not thousands.

A handler that cannot answer yet (no ticket is free) gives a future, and its peer's thread goes on listening. The answer
is then sent by the thread that finds it, if that need not wait for the peer: no other thread has to be woken.

A stranger costs one thread for `HANDSHAKE_SECONDS` at most, and no more than `STRANGERS` are served at once; each
further one takes the place of the one that came first.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from trainmaster_trainer.transport import handshake
from trainmaster_trainer.transport.connection import LISTENER, MEMORY, MOST_BYTES, Connection
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.handshake import Caller, Identity
from trainmaster_trainer.transport.stream import close, prepare, set_timeout

log = logging.getLogger(__name__)
HANDSHAKE_SECONDS = 5.0
STRANGERS = 32
ERROR = "error"
Answer = Message | Future[Message]
Handler = Callable[[Caller, Message], Answer]
SENDERS = 64
_BREATH_SECONDS = 0.1
_NO_LISTENER = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP)


class RequestRefusedError(Exception):
    """RequestRefusedError is what a handler raises to refuse a request: the asker gets it, the connection stays."""


class Service:
    """Service answers the requests of verified peers with `handler`, each peer in a thread of its own."""

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
        self._open: dict[Connection, Caller] = {}
        self._closed = False
        self._senders = ThreadPoolExecutor(max_workers=SENDERS, thread_name_prefix="answer")
        listener.setblocking(True)
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    @property
    def present(self) -> set[int]:
        """Return the ranks that are connected now."""
        with self._lock:
            return {caller.rank for caller in self._open.values()}

    def close(self) -> None:
        """Close the listener and all connections."""
        self._closed = True
        close(self._listener)
        with self._lock:
            strangers, connections = list(self._strangers), list(self._open)
        for stranger in strangers:
            close(stranger)
        for connection in connections:
            connection.close()
        self._senders.shutdown(wait=False)

    def _accept(self) -> None:
        try:
            while not self._closed:
                self._accept_one()
        except Exception as error:  # noqa: BLE001 (whatever it was: no caller would ever be heard again)
            if not self._closed:
                self._failed(error)

    def _accept_one(self) -> None:
        """Accept one more caller. Where descriptors, memory or threads are short, pause for a moment."""
        try:
            connected, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _NO_LISTENER or self._closed:
                raise
            log.warning("No caller can be heard at the moment: %s", error)
            time.sleep(_BREATH_SECONDS)
            return
        with self._lock:
            self._strangers.append(connected)
            crowded = self._strangers[0] if len(self._strangers) > STRANGERS else None
        if crowded is not None:
            close(crowded)
        try:
            threading.Thread(target=self._serve, args=(connected,), name="peer", daemon=True).start()
        except RuntimeError as error:
            log.warning("A caller cannot be heard at the moment: %s", error)
            self._turn_away(connected)
            time.sleep(_BREATH_SECONDS)

    def _turn_away(self, connected: socket.socket) -> None:
        with self._lock:
            self._strangers.remove(connected)
        close(connected)

    def _serve(self, connected: socket.socket) -> None:
        try:
            prepare(connected)
            set_timeout(connected, HANDSHAKE_SECONDS)
            caller, key = handshake.answer(connected, self._identity)
        except Exception as error:  # noqa: BLE001 (a stranger may not end this process, whatever it says)
            log.debug("A caller was not let in: %s", error)
            self._turn_away(connected)
            return
        connection = Connection(connected, key, LISTENER, self._most)
        with self._lock:
            self._strangers.remove(connected)
            self._open[connection] = caller
        self._serve_peer(connection, caller)

    def _serve_peer(self, connection: Connection, caller: Caller) -> None:
        connection.set_timeout(0)
        try:
            self._converse(connection, caller)
        except OSError as error:
            log.debug("Rank %d is gone: %s", caller.rank, error)
        except Exception:
            log.exception("Rank %d could not be answered.", caller.rank)
        finally:
            connection.close()
            with self._lock:
                del self._open[connection]
            self._tell(caller)

    def _converse(self, connection: Connection, caller: Caller) -> None:
        while True:
            request = connection.receive()
            if request.name == MEMORY:
                connection.take_memory(request)
                continue
            try:
                answer = self._handler(caller, request)
            except RequestRefusedError as refusal:
                answer = Message(ERROR, {"text": str(refusal)})
            except Exception as error:
                self._failed(error)  # ours, not the asker's: this process has to end, not the thread alone
                raise
            if isinstance(answer, Message):
                self._send(connection, answer)
            else:
                answer.add_done_callback(partial(self._answer_later, connection))

    def _answer_later(self, connection: Connection, found: Future[Message]) -> None:
        """Send an answer that was found later. This runs in the thread that found it."""
        error = found.exception()
        if isinstance(error, Exception):
            self._failed(error)
            return
        answer = found.result()
        try:
            if connection.takes_at_once(answer):
                self._send_later(connection, answer)
            else:
                self._senders.submit(self._send_later, connection, answer)
        except RuntimeError as problem:  # no thread can be started
            log.warning("A peer has to ask again: %s", problem)
            connection.close()

    def _send(self, connection: Connection, answer: Message) -> None:
        try:
            connection.send(answer)
        except OSError:
            raise
        except Exception as error:  # who asked would ask for ever
            self._failed(error)
            raise

    def _send_later(self, connection: Connection, answer: Message) -> None:
        try:
            self._send(connection, answer)
        except Exception as error:  # noqa: BLE001 (what is ours has been told)
            log.debug("A peer is gone before its answer: %s", error)
            connection.close()  # the thread that listens to it tells

    def _tell(self, caller: Caller) -> None:
        """Call `gone` where the last connection of a process is closed."""
        with self._lock:
            still_there = caller in self._open.values()
        if not still_there and not self._closed:
            try:
                self._gone(caller)
            except Exception as error:  # noqa: BLE001 (whatever it was)
                self._failed(error)


def inherited_listener(descriptor: int) -> socket.socket:
    """Return the socket that the agent opened beforehand and handed to this rank."""
    return socket.socket(fileno=descriptor)
