"""The operator's side of the protocol: a real HTTP server that takes heartbeats, holds requests and gives orders."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any

from trainmaster.wire import codec
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import Heartbeat, Member, Orders, Rendezvous, Roster

Key = tuple[str, int]


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    intake: Intake


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        """One heartbeat."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, answer = self.server.intake.answer(self.headers.get("Authorization", ""), body)
        if self.server.intake.closed:
            self.close_connection = True  # as when the operator's process dies
            return
        with contextlib.suppress(BrokenPipeError):  # an agent that ended while its request was held
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        """Quiet."""


class Intake:
    """Gives everybody `orders[key]`, else Wait(0)."""

    def __init__(self, port: int = 0, token: str = "", hold_seconds: float = 1.0) -> None:
        self.token = token or secrets.token_hex(8)
        self.hold_seconds = hold_seconds
        self.changed = threading.Condition()
        self.orders: dict[Key, Orders] = {}
        self.heartbeats: list[tuple[float, Heartbeat]] = []
        self.newest: dict[Key, Heartbeat] = {}
        self.refusal: tuple[int, str] | None = None
        self.refused = 0
        self.repeats = False  # as an operator that knows no answer without a body
        self.react: Callable[[Heartbeat], None] = lambda _: None
        self.closed = False
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.intake = self
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where agents find it."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """The operator goes away; requests that it holds break off."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        # Bound and not listening: connections are refused, and nobody else gets the port until it is served again.
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", self.port))

    def answer(self, authorization: str, body: bytes) -> tuple[int, bytes]:
        """Take a heartbeat."""
        with self.changed:
            if self.refusal is not None or authorization != f"Bearer {self.token}":
                self.refused += 1
                self.changed.notify_all()
                status, reason = self.refusal or (401, "wrong token")
                return status, reason.encode()
            heartbeat = codec.decode(Heartbeat, body)
            key = (heartbeat.role, heartbeat.index)
            self._take(key, heartbeat)
            if heartbeat.hold:
                self.changed.wait_for(lambda: self._is_news(key, heartbeat), self.hold_seconds)
            if heartbeat.takes_204 and not self.repeats and not self._is_news(key, heartbeat):
                return 204, b""
            return 200, codec.encode(self._for(key))

    def order(self, key: Key, orders: Orders) -> None:
        """Give one agent orders."""
        with self.changed:
            self.orders[key] = orders
            self.changed.notify_all()

    def run(self, attempt: int, agents: list[tuple[Key, int]], **more: Any) -> Roster:
        """Order everybody to run `attempt`; the first one's offer is the rendezvous."""
        with self.changed:
            roster = self.roster(attempt, agents)
            for key, _ in agents:
                self.orders[key] = self.run_orders(roster, **more)
            self.changed.notify_all()
        return roster

    def roster(self, attempt: int, agents: list[tuple[Key, int]], rendezvous: Rendezvous | None = None) -> Roster:
        """Members in this order, with ranks in this order."""
        members: list[Member] = []
        for (role, index), ranks in agents:
            members.append(Member(role, index, 0, "127.0.0.1", sum(member.ranks for member in members), ranks))
        return Roster(attempt, tuple(members), "127.0.0.1", rendezvous or self.newest[agents[0][0]].offer)

    def independent(self, attempt: int, starts: dict[Key, int], ports: dict[Key, tuple[int, ...]]) -> Roster:
        """Members that come and go, one rank each, in this order; the first one's first offer is the rendezvous."""
        group = self.roster(attempt, [(key, 1) for key in starts])
        members = tuple(
            dataclasses.replace(member, start=starts[key], ports=ports[key])
            for key, member in zip(starts, group.members, strict=True)
        )
        meeting = dataclasses.replace(group.rendezvous, ports=())
        return dataclasses.replace(group, members=members, rendezvous=meeting, independent=True)

    def run_orders(self, roster: Roster, **more: Any) -> Orders:
        """Run `roster`."""
        more.setdefault("hold_seconds", self.hold_seconds)
        return Orders(Verb.RUN, roster.attempt, "test", roster, **more)

    def wait_orders(self, attempt: int) -> Orders:
        """End what is older than `attempt`."""
        return Orders(Verb.WAIT, attempt, "test", hold_seconds=self.hold_seconds)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 200.0) -> None:
        """Wait until heartbeats have made `condition` true."""
        with self.changed:
            assert self.changed.wait_for(condition, seconds), f"waited in vain for {what}: {self.newest}"

    def wait_state(self, state: str, attempt: int, *keys: Key) -> list[Heartbeat]:
        """Wait until all of `keys` say that they are there; a group whose member has failed does not finish."""

        def there() -> bool:
            found = [self.newest.get(key) for key in keys]
            for one in found if state == AgentState.FINISHED else ():
                failed = one and one.start is None and (one.state, one.attempt) == (AgentState.FAILED, attempt)
                assert not failed, f"it has failed: {one}"
            return all(one is not None and (one.state, one.attempt) == (state, attempt) for one in found)

        self.wait(there, f"{state} of attempt {attempt}")
        return [self.newest[key] for key in keys]

    def first_time(self, condition: Callable[[Heartbeat], bool]) -> float:
        """When the first heartbeat came for which `condition` holds."""
        with self.changed:
            return next(when for when, heartbeat in self.heartbeats if condition(heartbeat))

    def _take(self, key: Key, heartbeat: Heartbeat) -> None:
        self.heartbeats.append((time.monotonic(), heartbeat))
        if key not in self.newest or self.newest[key].sequence < heartbeat.sequence:
            self.newest[key] = heartbeat
            self.react(heartbeat)
        self.changed.notify_all()

    def _is_news(self, key: Key, heartbeat: Heartbeat) -> bool:
        return self.closed or self._for(key).version != heartbeat.orders_seen

    def _for(self, key: Key) -> Orders:
        return self.orders.get(key, Orders(Verb.WAIT, 0, "nothing yet", hold_seconds=self.hold_seconds))
