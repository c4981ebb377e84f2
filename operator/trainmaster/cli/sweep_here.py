"""Run the jobs of a sweep on this machine: each is a `trainmaster run` in a folder of its own in .trainmaster/."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any

from trainmaster.cli.sweep_plan import Trial
from trainmaster.cli.sweep_results import TrialOutcome
from trainmaster.cli.targets import LocalRun
from trainmaster.local.workdir import RUNS

_SAVE_SECONDS = 120.0
_LAST_LINES = 3


class Here:
    """Here are the processes of a sweep, and the folders in which they have left their status."""

    parallel, pause = 1, 0.2

    def __init__(self, job: str, common: Sequence[str], storage: dict[str, str]) -> None:
        self._job = job
        self._common = list(common)
        self._storage = storage  # the folder of each trial's checkpoints, where the job names one
        self._running: dict[str, tuple[subprocess.Popen[bytes], IO[Any]]] = {}

    def look(self, trial: Trial) -> TrialOutcome | None:
        """Return how a trial has ended in an earlier call, None where it has not."""
        status = LocalRun(RUNS / trial.name).status
        return TrialOutcome(trial, status.phase, status, status.message or "") if status.finished else None

    def start(self, trial: Trial) -> TrialOutcome | None:
        """Start a trial, or let one go on that was stopped. It never ends at once."""
        changes = [*self._common, *trial.changes]
        if trial.name in self._storage:
            changes.append(f"checkpoint.storage.path={self._storage[trial.name]}")
        command = [sys.executable, "-m", "trainmaster", "run", self._job, "--workdir", str(RUNS / trial.name)]
        command += ["--output", "json", *(word for change in changes for word in ("--set", change))]
        said = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed when the process has ended)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for the sweep, which passes it on once
        )
        self._running[trial.name] = (process, said)
        return None

    def poll(self, trial: Trial) -> TrialOutcome | None:
        """Return how a trial has ended, None while it runs."""
        process, said = self._running[trial.name]
        if process.poll() is None:
            return None
        del self._running[trial.name]
        with said:
            said.seek(0)
            lines = said.read()[-4096:].decode(errors="replace").strip().split("\n")[-_LAST_LINES:]
        status = LocalRun(RUNS / trial.name).status
        if status.finished:
            return TrialOutcome(trial, status.phase, status, status.message or "")
        return TrialOutcome(trial, "Failed", status, " ".join(lines) or f"it ended with exit code {process.returncode}")

    def stop(self) -> None:
        """Let all of them save and end; at a second Ctrl-C, or after two minutes, end them at once."""
        for process, _ in self._running.values():
            process.send_signal(signal.SIGINT)
        try:
            for process, _ in self._running.values():
                process.wait(_SAVE_SECONDS)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            pass
        finally:
            for process, said in self._running.values():
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                process.wait()
                said.close()
            self._running.clear()

    def where(self, trial: Trial) -> str:
        """Return what to look at a trial by."""
        return str(RUNS / trial.name)
