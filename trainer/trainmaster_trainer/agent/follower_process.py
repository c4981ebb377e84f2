"""Start one follower of metrics.jsonl as a process, listen to it, and start it again where it ends too early."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from trainmaster.wire import trackers
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent import environment, process
from trainmaster_trainer.agent.agent_settings import AgentSettings
from trainmaster_trainer.agent.frameworks.position import interpreter_of
from trainmaster_trainer.agent.own_program import program_of
from trainmaster_trainer.agent.reactor import Reactor

_MODULE = "trainmaster_trainer.trackers.follower"
_PAUSES = (5.0, 30.0, 120.0, 600.0)  # before one that has ended is started again
_CHUNK = 1 << 16


class FollowerProcess:
    """FollowerProcess is one process, started again where it ends before the job does."""

    def __init__(
        self,
        name: str,
        settings: AgentSettings,
        reactor: Reactor,
        heard: Callable[[str, str], None],
        ended: Callable[[], None],
    ) -> None:
        self.title = trackers.TRACKERS[name].title
        self.has_ended = False
        self.worked = time.monotonic()  # when it began, or last came further
        self._name = name
        self._settings = settings
        self._reactor = reactor
        self._heard = heard
        self._ended = ended
        self._is_last = False  # it is not started again
        self._starts = 0
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._text = b""
        self._start()

    def finish(self, end: str) -> None:
        """Tell it that the job has ended, and how."""
        self._is_last = True
        self.has_ended = self._process is None
        self.say({"end": end})

    def say(self, what: Dict[str, Any]) -> None:
        """Tell it something, if it runs, and listens."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended just now, or its pipe is full
                os.write(self._process.stdin.fileno(), f"{json.dumps(what)}\n".encode())

    def kill(self) -> None:
        """End it at once, with all that its library has started."""
        self.has_ended = True
        if self._process is not None:
            process.kill_group(self._process.pid, signal.SIGKILL)
            self._forget(self._process)

    def _start(self) -> None:
        if self._is_last:
            return
        self._starts += 1
        try:
            variables = {name: value for name, value in os.environ.items() if name not in environment.PRIVATE}
            self._process = subprocess.Popen(
                _command(self._settings, self._name),
                cwd=self._settings.plan.working_directory,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            Path(f"/proc/{self._process.pid}/oom_score_adj").write_text("1000")
        except OSError as error:
            if self._process is None:
                self._heard(self.title, f"its follower cannot be started: {error}")
                self._later()
                return
        assert self._process is not None  # noqa: S101 just made
        assert self._process.stdin is not None  # noqa: S101 asked for
        assert self._process.stdout is not None  # noqa: S101 likewise
        os.set_blocking(self._process.stdin.fileno(), False)
        self._reactor.watch(self._process.stdout.fileno(), self._read)

    def _read(self) -> None:
        """Take what it says; the end of its output is its own."""
        running = self._process
        assert running is not None  # noqa: S101 else nothing is watched
        assert running.stdout is not None  # noqa: S101 asked for
        data = os.read(running.stdout.fileno(), _CHUNK)
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "problem" in told:
                self._heard(self.title, str(told["problem"]))
            else:
                self.worked = time.monotonic()
        if not data:
            process.kill_group(running.pid, signal.SIGKILL)  # what its library has started
            self._forget(running)
            if self._is_last:
                self.has_ended = True
                self._ended()
            else:
                self._heard(self.title, "its follower has ended by itself, and is started again")
                self._later()

    def _forget(self, running: subprocess.Popen[bytes]) -> None:
        assert running.stdin is not None  # noqa: S101 asked for
        assert running.stdout is not None  # noqa: S101 likewise
        self._reactor.unwatch(running.stdout.fileno())
        running.stdin.close()
        running.stdout.close()
        running.poll()
        self._process = None

    def _later(self) -> None:
        self._reactor.after(_PAUSES[min(self._starts, len(_PAUSES)) - 1], self._start)


def _command(settings: AgentSettings, name: str) -> List[str]:
    """Return the command line of a follower. It runs by the Python of the user's command, which has the library.

    Raises:
        OSError: what it is to read cannot be written.
    """
    plan = settings.plan
    subject = {
        "tracker": name,
        "options": dict(trackers.chosen(plan.trackers, os.environ)[name]),
        "folder": settings.checkpoints,
        "job": settings.job,
        "uid": settings.job_uid,
        "parameters": parameters_of(plan),
        "is_script": bool(plan.command),
    }
    file = Path(settings.scratch) / f"follower-{settings.role}-{settings.index}-{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(subject), encoding="utf-8")
    interpreter = interpreter_of(plan.command) if plan.command else sys.executable
    path = "[one for one in sys.path if one]"  # else modules in the folder that it begins in would be libraries to it
    return [interpreter, "-c", program_of(_MODULE, path), str(file)]


def parameters_of(plan: TrainingPlan) -> Dict[str, str]:
    """Return what a job is trained with, as names and texts."""
    told = {
        "strategy": plan.strategy,
        **{f"strategy.{name}": value for name, value in plan.strategy_options.items()},
        "task": plan.task,
        "command": " ".join(plan.command),
        "framework": plan.framework,
        "steps": plan.steps,
        "globalBatchSize": plan.global_batch_size,
        "seed": plan.seed if plan.task else None,
        "precision": plan.precision,
        "code": plan.code or (plan.code_url.sha256 if plan.code_url else None),
        "commit": plan.commit,
        **{f"arguments.{name}": value for name, value in plan.arguments.items()},
    }
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in told.items() if value}
