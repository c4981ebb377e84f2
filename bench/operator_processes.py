"""The processes of `bench operator`, and what they cost: memory and processor time as the kernel counts them."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 120.0


class Process:
    """A child of ours."""

    def __init__(
        self,
        arguments: list[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        program: str = sys.executable,
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                [program, *arguments], stdout=output, stderr=output, env={**os.environ, **(environment or {})}
            )

    def cpu_seconds(self) -> float:
        """Processor time since its start."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        """Resident memory now."""
        lines = Path(f"/proc/{self._child.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024

    def check(self) -> None:
        """It must not have ended.

        Raises:
            RuntimeError: it has.
        """
        if self._child.poll() is not None:
            raise RuntimeError(f"{self._child.args!r} has ended:\n{self._log.read_text()[-3000:]}")

    def await_ready(self, port: int) -> None:
        """Until its probe says that it is at work."""
        deadline = time.monotonic() + READY_SECONDS
        while not _answers(f"http://127.0.0.1:{port}/readyz"):
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready after {READY_SECONDS} s")
            time.sleep(0.01)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """And wait for its end."""
        if self._child.poll() is None:
            self._child.send_signal(number)
            self._child.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310  our own probe
            return bool(response.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False
