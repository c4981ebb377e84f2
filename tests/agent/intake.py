"""The operator's side of the protocol for tests: a real HTTP server that holds requests, and agents as processes."""

from __future__ import annotations

import http.server
import json
import os
import secrets
import signal
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from trainmaster.wire import codec, messages, names
from trainmaster.wire.messages import Heartbeat, Member, Orders, Rendezvous, Roster
from trainmaster.wire.training import TrainingPlan

Key = Tuple[str, int]


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    intake: "Intake"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, answer = self.server.intake.answer(self.headers.get("Authorization", ""), body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        """Quiet."""


class Intake:
    """Takes heartbeats, gives orders. `orders[key]` may be replaced at any time."""

    def __init__(self, port: int = 0, hold_seconds: float = 2.0) -> None:
        self.token = secrets.token_hex(8)
        self.hold_seconds = hold_seconds
        self.changed = threading.Condition()
        self.orders: Dict[Key, Orders] = {}
        self.heartbeats: List[Tuple[float, Heartbeat]] = []
        self.newest: Dict[Key, Heartbeat] = {}
        self.refusal: Optional[Tuple[int, str]] = None
        self.react: Callable[[Heartbeat], None] = lambda heartbeat: None
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.intake = self
        self.port = self._server.server_address[1]
        threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.05), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, authorization: str, body: bytes) -> Tuple[int, bytes]:
        if authorization != f"Bearer {self.token}":
            return 401, b"wrong token"
        heartbeat = codec.decode(Heartbeat, body)
        key = (heartbeat.role, heartbeat.index)
        with self.changed:
            if self.refusal is not None:
                return self.refusal[0], self.refusal[1].encode()
            self.heartbeats.append((time.monotonic(), heartbeat))
            if key not in self.newest or self.newest[key].sequence < heartbeat.sequence:
                self.newest[key] = heartbeat
                self.react(heartbeat)
            self.changed.notify_all()
            if heartbeat.hold:
                self.changed.wait_for(lambda: self._for(key).version != heartbeat.orders_seen, self.hold_seconds)
            return 200, codec.encode(self._for(key))

    def _for(self, key: Key) -> Orders:
        return self.orders.get(key, Orders(messages.WAIT, 0, "", hold_seconds=self.hold_seconds))

    def order(self, key: Key, orders: Orders) -> None:
        with self.changed:
            self.orders[key] = orders
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool], what: str = "", seconds: float = 30.0) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, seconds), f"waited in vain for {what}: {self.newest}"

    def wait_state(self, state: str, attempt: int, *keys: Key, seconds: float = 30.0) -> None:
        wanted = keys or tuple(self.newest)

        def there() -> bool:
            found = [self.newest.get(key) for key in wanted]
            return all(one is not None and (one.state, one.attempt) == (state, attempt) for one in found)

        self.wait(there, f"{state} of attempt {attempt}", seconds)

    def run(self, attempt: int, agents: List[Tuple[Key, int]], **more: Any) -> Roster:
        """Order everybody to run `attempt`, as the operator would: the first one's offer is the rendezvous."""
        with self.changed:
            roster = self.roster(attempt, agents)
            for key, _ in agents:
                self.orders[key] = self.run_orders(roster, **more)
            self.changed.notify_all()
        return roster

    def roster(self, attempt: int, agents: List[Tuple[Key, int]], rendezvous: Optional[Rendezvous] = None) -> Roster:
        members, first = [], 0
        for (role, index), ranks in agents:
            members.append(Member(role, index, 0, "127.0.0.1", first, ranks))
            first += ranks
        return Roster(attempt, tuple(members), "127.0.0.1", rendezvous or self.newest[agents[0][0]].offer)

    def run_orders(self, roster: Roster, **more: Any) -> Orders:
        more.setdefault("hold_seconds", self.hold_seconds)
        return Orders(messages.RUN, roster.attempt, "test", roster, **more)


class AgentProcess:
    """One agent, started as the hands start it. Its output is collected."""

    def __init__(
        self,
        folder: Path,
        intake: Intake,
        plan: TrainingPlan,
        index: int = 0,
        ranks: int = 1,
        role: str = names.WORKER,
        **variables: str,
    ) -> None:
        self.key: Key = (role, index)
        self.ranks = ranks
        self.scratch = folder / f"scratch-{role}-{index}"
        self.scratch.mkdir(parents=True)
        self.checkpoints = folder / "checkpoints"
        token = folder / "token"
        token.write_text(intake.token)
        self.log = folder / f"{role}-{index}.log"
        environment = {
            **os.environ,
            names.ENV_JOB: "default/test",
            names.ENV_JOB_UID: "uid-1",
            names.ENV_ROLE: role,
            names.ENV_INDEX: str(index),
            names.ENV_INCARNATION: "0",
            names.ENV_POD_UID: f"pod-{index}",
            names.ENV_ADDRESS: "127.0.0.1",
            names.ENV_OPERATOR: intake.url,
            names.ENV_TOKEN_FILE: str(token),
            names.ENV_RANKS: str(ranks),
            names.ENV_TRAINING: codec.encode(plan).decode(),
            names.ENV_CHECKPOINTS: str(self.checkpoints),
            names.ENV_SCRATCH: str(self.scratch),
            names.ENV_PARENT_PID: str(os.getpid()),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "scripts"), os.environ.get("PYTHONPATH", "")]),
            **variables,
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainmaster_trainer.agent"],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        """However the test went."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def lines(path: Path) -> List[Dict[str, Any]]:
    """JSON lines that scripts of these tests write."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
