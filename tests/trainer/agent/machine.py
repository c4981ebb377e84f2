"""Agents as real processes, what their ranks say, and the proof that nothing of them is left."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.wire import codec, names
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent.channel import Channel

from tests.trainer.agent.intake import Intake, Key

SCRIPTS = Path(__file__).parent / "scripts"
# In the environment of everything that the tests start.
MARK = "TRAINMASTER_TEST_MARK"
RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


class Witness:
    """Hears what scripts say (`scripts/witness.py`)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "witness"
        self.heard: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))

    def wait(self, count: int = 1, seconds: float = 200.0, **what: Any) -> list[dict[str, Any]]:
        """Wait until `count` things with these members have been said."""
        until = time.monotonic() + seconds
        while len(found := self.find(**what)) < count:
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            try:
                self.heard.append(json.loads(self._socket.recv(65536)))
            except TimeoutError:
                raise AssertionError(f"waited in vain for {count} of {what}; heard {self.heard}") from None
        return found

    def find(self, **what: Any) -> list[dict[str, Any]]:
        """What has been heard so far with these members."""
        return [said for said in self.heard if what.items() <= said.items()]

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()


class Ended(NamedTuple):
    """What a program printed, and its exit code (below 0: the signal)."""

    output: str
    errors: str
    code: int


class Line:
    """A line to a warm parent, as an agent has one."""

    def __init__(self, path: Path) -> None:
        connection = socket.socket(socket.AF_UNIX)
        until = time.monotonic() + 200
        while connection.connect_ex(str(path)):
            assert time.monotonic() < until
            time.sleep(0.01)  # it binds its socket when it has started: there is nothing to wait on
        self._channel = Channel(connection)
        self._identity = 0

    def run(self, folder: Path, words: tuple[str, ...], **variables: str) -> Ended:
        """Run a command as a rank, to its end."""
        plan = TrainingPlan("AllReduce", command=words, working_directory=str(folder))
        environment = {**os.environ, **RANK, **variables, names.ENV_TRAINING: codec.encode(plan).decode()}
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        self._identity += 1
        self._channel.send(
            {"start": "rank", "id": self._identity, "environment": environment}, [output_end, errors_end]
        )
        os.close(output_end)
        os.close(errors_end)
        with os.fdopen(output) as said, os.fdopen(errors) as complained:
            texts = said.read(), complained.read()
        end = self._end()
        return Ended(*texts, end["code"] if end["code"] is not None else -1)

    def _end(self) -> dict[str, Any]:
        while True:
            for message, _ in self._channel.wait():
                if message.get("ended") == self._identity:
                    return message

    def close(self) -> None:
        """Hang up."""
        self._channel.close()


class AgentProcess:
    """One agent, started as the platforms start it."""

    def __init__(
        self,
        folder: Path,
        intake: Intake,
        plan: TrainingPlan,
        key: Key = (names.WORKER, 0),
        python: str = sys.executable,
    ) -> None:
        self.key = key
        self.command: tuple[str, ...] = (python, "-m", "trainmaster_trainer.agent")
        role, index = key
        self.log = folder / f"{role}-{index}.log"
        self.scratch = folder / f"scratch-{role}-{index}"
        self.checkpoints = folder / "checkpoints"
        self.token_file = folder / "token"
        self.variables = {
            names.ENV_JOB: "default/test",
            names.ENV_JOB_UID: "uid-1",
            names.ENV_ROLE: role,
            names.ENV_INDEX: str(index),
            names.ENV_INCARNATION: "0",
            names.ENV_POD_UID: f"pod-{role}-{index}",
            names.ENV_ADDRESS: "127.0.0.1",
            names.ENV_OPERATOR: intake.url,
            names.ENV_TOKEN_FILE: str(self.token_file),
            names.ENV_RANKS: "1",
            names.ENV_TRAINING: codec.encode(plan).decode(),
            names.ENV_CHECKPOINTS: str(self.checkpoints),
            names.ENV_SCRATCH: str(self.scratch),
            names.ENV_PARENT_PID: str(os.getpid()),
            "TEST_WITNESS": str(folder / "witness"),
        }
        self.token_file.write_text(intake.token)
        self.scratch.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **variables: str) -> AgentProcess:
        """Start it, with these variables besides."""
        inherited = {name: value for name, value in os.environ.items() if name != "RES_OPTIONS"}  # of tests/conftest.py
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env={**inherited, **self.variables, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    @property
    def pid(self) -> int:
        """Of the agent itself."""
        assert self.process is not None
        return self.process.pid

    @property
    def text(self) -> str:
        """All that the agent and its ranks wrote."""
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float = 200.0) -> int:
        """Wait for its end; the exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def end(self) -> None:
        """End it, however the test went."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class SharedParent:
    """A warm parent as the local platform starts it."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.path = folder / "warm"
        self.process = subprocess.Popen(
            [sys.executable, "-c", names.WARM_PROGRAM, names.WARM_MODULE, "--socket", str(self.path)],
            env={**os.environ, names.ENV_PARENT_PID: str(os.getpid()), **variables},
        )

    def close(self) -> None:
        """As the local platform ends it."""
        self.process.terminate()
        self.process.wait(200)  # it may import torch just now


def ours() -> dict[int, str]:
    """Every living process that these tests have started, by pid: its short name."""
    wanted = f"{MARK}={os.environ[MARK]}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "comm").read_text().strip()
        except OSError:
            continue  # it has ended, or is a zombie
    return found


def wait_gone(pid: int, seconds: float = 200.0) -> bool:
    """Wait for the end of a process that is not a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
