"""Faults for a job on the one-machine cluster, from the host, which sees every process of every pod.

Used by test_real_faults.py. Everything is done to processes that were found by the job's own variables, and to
network namespaces that end with their pod.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmaster.wire import names


@dataclass(frozen=True)
class PodProcesses:
    """The processes of one replica of a job."""

    namespace: str
    index: int
    job: str = "digits"

    @property
    def agent(self) -> int:
        """The pid of its agent, as the host counts."""
        wanted = {f"{names.ENV_JOB}={self.namespace}/{self.job}", f"{names.ENV_INDEX}={self.index}"}
        for pid in _pids():
            if wanted <= set(_read(pid, "environ").split("\0")) and "agent/start.py\0" in _read(pid, "cmdline"):
                return pid
        raise LookupError(f"no agent of {wanted} on this machine")

    @property
    def rank(self) -> int:
        """The pid of its rank: the process in the same container, but for the agent, that maps a progress page."""
        agent = self.agent
        here = _namespace(agent)
        for pid in _pids():
            if pid != agent and _namespace(pid) == here and ".progress" in _read(pid, "maps"):
                return pid
        raise LookupError(f"worker {self.index} has no rank now")

    def signal_rank(self, number: signal.Signals) -> None:
        """Send its rank a signal."""
        os.kill(self.rank, number)

    @contextmanager
    def network(self, *command: str, undo: tuple[str, ...]) -> Iterator[None]:
        """Change something in the pod's own network, for a while."""
        inside = ("nsenter", f"--target={self.agent}", "--net")
        subprocess.run([*inside, *command], check=True)
        try:
            yield
        finally:
            subprocess.run([*inside, *undo], check=False, capture_output=True)  # gone with the pod, if that went


def cut_from(address: str) -> str:
    """A packet filter that loses everything to and from one peer."""
    chains = (
        f"chain in {{ type filter hook input priority 0; ip saddr {address} drop; }}",
        f"chain out {{ type filter hook output priority 0; ip daddr {address} drop; }}",
    )
    return f"table inet cut {{ {'; '.join(chains)}; }}"


def _pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _read(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""
