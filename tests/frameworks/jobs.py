"""Jobs of other frameworks, the Python that has each of them, and what their ranks have printed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainmaster.wire import names
from trainmaster.wire.messages import Member, Rendezvous, Roster
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent import frameworks
from trainmaster_trainer.agent.frameworks.position import position_of

from tests.local.command import Command

SCRIPTS = Path(__file__).parent / "scripts"
CACHE = Path(os.environ.get("TRAINMASTER_CACHE", "~/.cache/trainmaster")).expanduser()


def python(environment: str) -> str:
    """The interpreter of one of the environments that `make setup-frameworks` makes."""
    path = CACHE / "frameworks" / environment / "bin" / "python"
    assert path.exists(), f"{path} is not there: make setup-frameworks"
    return str(path)


def a_job(framework: str, command: list[str], workers: int = 2, /, **env: str) -> dict[str, Any]:
    """A job of a script under AllReduce; `env` is that of its workers."""
    return {
        "apiVersion": "trainmaster.dev/v1",
        "kind": "TrainingJob",
        "metadata": {"name": framework.lower()},
        "spec": {
            "strategy": {"type": "AllReduce"},
            "training": {"framework": framework, "command": command},
            "workers": {"replicas": workers, "env": [{"name": name, "value": value} for name, value in env.items()]},
        },
    }


def said(command: Command, word: str) -> list[str]:
    """What ranks printed after this word at the beginning of a line, in any of their logs."""
    logs = sorted((command.workdir / "logs").glob("*.log"))
    return [found for log in logs for found in re.findall(rf"^{word} (.*)$", log.read_text(), re.MULTILINE)]


def line_of_the_ledger(command: Command) -> dict[str, Any]:
    """The only failure."""
    (line,) = command.status["restarts"]
    return dict(line)


def running(command: Command, word: str) -> list[int]:
    """The processes of the job that have this word in their command line."""
    found = []
    for pid in command.processes():
        with contextlib.suppress(OSError):
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def until(there: Callable[[], bool], seconds: float = 200.0) -> None:
    """Wait for something that processes do which are no children of ours."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


def of_a_taken_port(framework: str, environment: str) -> str:
    """What the companion of this framework says last if somebody else listens at its port."""
    with socket.create_server(("127.0.0.1", 0)) as taken, tempfile.TemporaryDirectory() as folder:
        members = tuple(
            Member(names.WORKER, index, 0, "127.0.0.1", index, 1, (taken.getsockname()[1],)) for index in range(2)
        )
        plan = TrainingPlan(strategy="AllReduce", command=(python(environment), "a.py"))
        variables = {"RANK": "0", names.ENV_ERROR_FILE: f"{folder}/error.json"}
        position = position_of(plan, Roster(1, members, "127.0.0.1", Rendezvous(1, "k" * 64)), variables)
        told = frameworks.instructions(framework, position)
        for name, text in told.files.items():
            path = Path(position.folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (companion,) = told.companions
        ended = subprocess.run(
            companion.command,
            check=False,
            env={**os.environ, **told.variables},
            capture_output=True,
            text=True,
            timeout=250,
        )
        for left in told.temporary:
            shutil.rmtree(left, ignore_errors=True)
    assert ended.returncode
    return ended.stderr
