"""Send heartbeats to the operator and take its orders, in two threads, because one request is always held open.

The operator may be away for as long as it likes: training goes on, and one line in the log says
when it went and one when it came back.
"""

from __future__ import annotations

import contextlib
import http
import http.client
import random
import socket
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Callable, Optional

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Orders

from trainmaster_trainer.agent.status_collector import StatusCollector

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_REFUSED_PAUSE_SECONDS = 2.0
# Of several operators only one leads; the next connection may lead to it.
_ELSEWHERE = 421
_LONGEST_PAUSE_ELSEWHERE_SECONDS = 0.3
# A standby refuses every agent that asks it, which is no news; that no operator has led for so long is.
_LEADERLESS_SECONDS = 15.0
_UNHELD_PAUSE_SECONDS = 0.25
_REFUSALS = (401, 403, 409, 410)
# The operator knows which agent asks, and that it is not wanted any more: its job, or its pod, is deleted. What the
# operator sees may be old by seconds, never by so long.
_GONE = http.HTTPStatus.GONE
GONE_SECONDS = 600.0
# Beyond the time that the operator may hold a request.
_SLACK_SECONDS = 10.0
_SHORT_SECONDS = 5.0
_LAST_SECONDS = 2.0

# Any of these means that the operator is away, or not an operator.
_TROUBLE = (OSError, http.client.HTTPException, ValueError)

Deliver = Callable[[Orders], None]
Log = Callable[[str], None]
Gone = Callable[[str], None]


class ReportRefusedError(Exception):
    """ReportRefusedError says that the operator answered, but not with orders."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the operator refused the heartbeat: {status} {reason}")
        self.status = status


class _LocalConnection(http.client.HTTPConnection):
    """_LocalConnection is HTTP at a unix socket: that of a local run, in a folder that only its own user may enter."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket in the place of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class OperatorConnection:
    """An OperatorConnection is an HTTP connection to the operator that is kept open between requests."""

    def __init__(self, url: str, token_file: str) -> None:
        self._url = urllib.parse.urlsplit(url)
        self._token_file = token_file
        self._connection: Optional[http.client.HTTPConnection] = None

    def exchange(self, body: bytes, seconds: float) -> Optional[bytes]:
        """Send a heartbeat; return the orders in the answer to it; None where they have not changed.

        Raises:
            OSError, http.client.HTTPException: the operator is away.
            RefusedError: it refused.
        """
        if self._connection is not None:
            try:
                return self._once(self._connection, body, seconds)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):
                self._forget()  # it may just have closed an idle connection
        self._connection = self._connect(seconds)
        try:
            return self._once(self._connection, body, seconds)
        except (OSError, http.client.HTTPException):
            self._forget()
            raise

    def _connect(self, seconds: float) -> http.client.HTTPConnection:
        if self._url.scheme == "unix":
            return _LocalConnection(self._url.path, seconds)
        secure = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(self._url.hostname or "", self._url.port, timeout=seconds)

    def _once(self, connection: http.client.HTTPConnection, body: bytes, seconds: float) -> Optional[bytes]:
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        connection.timeout = seconds
        # Every time: the kubelet replaces the file before the token expires.
        token = Path(self._token_file).read_text(encoding="ascii").strip()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        prefix = "" if self._url.scheme == "unix" else self._url.path.rstrip("/")
        connection.request("POST", prefix + names.HEARTBEAT_PATH, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status == http.HTTPStatus.NO_CONTENT:
            return None
        if answer.status != http.HTTPStatus.OK:
            raise ReportRefusedError(answer.status, content.decode(errors="replace")[:300].strip())
        return content

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ReportPauses:
    """ReportPauses says how long to wait before the next try: longer each time, never the same for all agents."""

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE_SECONDS
        self.failed = False

    def none(self) -> None:
        """Return to the shortest pause: the last try went well."""
        self._next, self.failed = _FIRST_PAUSE_SECONDS, False

    def longer(self, longest: float = _LONGEST_PAUSE_SECONDS) -> float:
        """Return the seconds to wait after a failure."""
        pause, self._next = min(self._next, longest), min(2 * self._next, longest)
        self.failed = True
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 no secret

    def refused(self) -> float:
        """Return the seconds to wait after a refusal, which seldom mends itself."""
        self.failed = True
        return _REFUSED_PAUSE_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311 no secret


def _pause_after(refusal: ReportRefusedError, pauses: ReportPauses) -> float:
    if refusal.status == _ELSEWHERE:
        return pauses.longer(_LONGEST_PAUSE_ELSEWHERE_SECONDS)
    return pauses.refused() if refusal.status in _REFUSALS else pauses.longer()


class Reporter:
    """Reporter holds the two threads."""

    def __init__(
        self, url: str, token_file: str, status_collector: StatusCollector, deliver: Deliver, log: Log, *, gone: Gone
    ) -> None:
        self._url = url
        self._token_file = token_file
        self._status_collector = status_collector
        self._deliver = deliver
        self._log = log
        self._gone = gone
        self._gone_since: Optional[float] = None
        self._hold_seconds = Orders.hold_seconds
        self._urgent = threading.Event()
        self._stop = threading.Event()
        self._said = ""
        self._well = time.monotonic()  # when an answer last came
        self._last_answer = b""
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to report."""
        for target in (self._keep_held, self._keep_urgent):
            threading.Thread(target=target, name=target.__name__, daemon=True).start()

    def report_now(self) -> None:
        """Report at once: something happened that must not wait for the held request's answer."""
        self._urgent.set()

    def stop(self) -> None:
        """Stop, and send the last heartbeat, if the operator is there to take it."""
        self._stop.set()
        self._urgent.set()
        with contextlib.suppress(ReportRefusedError, *_TROUBLE):
            self._send(OperatorConnection(self._url, self._token_file), hold=False, seconds=_LAST_SECONDS)

    def _keep_held(self) -> None:
        connection, pauses = OperatorConnection(self._url, self._token_file), ReportPauses()
        while not self._stop.is_set():
            seen, began = self._status_collector.orders_seen, time.monotonic()
            self._try(connection, True, self._hold_seconds + _SLACK_SECONDS, pauses)
            if self._status_collector.orders_seen == seen and time.monotonic() - began < self._hold_seconds / 2:
                # An operator that does not hold requests: never ask it in a tight loop.
                self._stop.wait(_UNHELD_PAUSE_SECONDS)

    def _keep_urgent(self) -> None:
        connection, pauses = OperatorConnection(self._url, self._token_file), ReportPauses()
        while not self._stop.is_set():
            self._urgent.wait()
            self._urgent.clear()
            self._try(connection, False, _SHORT_SECONDS, pauses)
            if pauses.failed:
                self._urgent.set()

    def _try(self, connection: OperatorConnection, hold: bool, seconds: float, pauses: ReportPauses) -> None:
        if self._stop.is_set():
            return
        try:
            self._send(connection, hold, seconds)
            pauses.none()
            self._well = time.monotonic()
            self._say("")
            self._gone_since = None
        except ReportRefusedError as refusal:
            if refusal.status != _ELSEWHERE or time.monotonic() > self._well + _LEADERLESS_SECONDS:
                self._say(str(refusal))
            if refusal.status == _GONE:
                # Only an operator that has said for long that the job is gone counts, and neither silence nor other
                # refusals.
                now = time.monotonic()
                since = self._gone_since = now if self._gone_since is None else self._gone_since
                if now - since >= GONE_SECONDS:
                    self._gone(f"{refusal!s}, for {now - since:.0f} s")
            self._stop.wait(_pause_after(refusal, pauses))
        except _TROUBLE as error:
            self._say(f"the operator at {self._url} is away ({error or type(error).__name__}); going on without it")
            self._stop.wait(pauses.longer())

    def _send(self, connection: OperatorConnection, hold: bool, seconds: float) -> None:
        heartbeat = self._status_collector.compose(hold)
        content = connection.exchange(codec.encode(heartbeat), seconds)
        if content is None:
            return
        with self._lock:
            # Both lines bring the same news, an older operator repeats it; a large roster takes long to decode.
            if content == self._last_answer:
                return
            # The other connection has brought orders since this was asked: these may be older ones. If they are not,
            # the next request says so, and has them at once.
            if heartbeat.orders_seen != self._status_collector.orders_seen:
                return
            orders = codec.decode(Orders, content)
            self._last_answer = content
            self._status_collector.orders_seen = orders.version
            self._hold_seconds = max(0.0, orders.hold_seconds)
            self._deliver(orders)

    def _say(self, text: str) -> None:
        """Log `text` if it is another than the last one; "" means that all is well."""
        with self._lock:
            if text == self._said:
                return
            if self._said == "" or text != "":
                self._log(text)
            else:
                self._log("the operator is back")
            self._said = text
