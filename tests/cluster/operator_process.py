"""The operator as a process of its own, which tests may stop, kill and start again; it keeps its ports."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.ports import free_port

READY_SECONDS = 120.0


class OperatorProcess:
    """`trainmaster operator` with a kubeconfig."""

    def __init__(self, folder: Path, kubeconfig: Path, *namespaces: str, lease: str = "", pod: str = "") -> None:
        self.log = folder / "operator.log"
        self._lease = [f"--lease={lease}"] if lease else []
        self._kubeconfig = kubeconfig
        self._pod = pod
        self._namespaces = namespaces
        self._port = free_port()
        self._probe_ports = {"healthz": free_port(), "readyz": free_port()}
        self.metrics_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where agents call in."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def ensure(self) -> None:
        """Running and ready."""
        if not self.alive:
            self.start()
        self.await_ready()

    def start(self) -> None:
        """Start; does not wait."""
        command = [sys.executable, "-m", "trainmaster", "operator", f"--listen=127.0.0.1:{self._port}"]
        command += [f"--probes=127.0.0.1:{self._probe_ports['healthz']}"]
        command += [f"--readiness=127.0.0.1:{self._probe_ports['readyz']}"]
        command += [f"--metrics=127.0.0.1:{self.metrics_port}"]
        command += [f"--namespace={name}" for name in self._namespaces]
        command += self._lease
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "TRAINMASTER_TRAINER_IMAGE": "trainer:test"}
        environment["TRAINMASTER_POD"] = self._pod
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def await_ready(self, seconds: float = READY_SECONDS) -> None:
        """Until it says that it is ready."""
        self.await_probe("readyz", 200, seconds)

    def await_probe(self, path: str, status: int, seconds: float = READY_SECONDS) -> None:
        """Until a probe says so."""
        deadline = time.monotonic() + seconds
        while self.probe(path) != status:
            assert self.alive, f"the operator has ended:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{path} is not {status}:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.05)  # the process tells nobody else when it is ready

    def probe(self, path: str) -> int:
        """The status of a probe; 0 while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._probe_ports[path]}/{path}", timeout=30) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def metrics(self) -> str:
        """The page that Prometheus reads."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as response:
            return str(response.read().decode())

    def await_end(self, seconds: float = READY_SECONDS) -> None:
        """Until it has ended by itself."""
        assert self._process
        self._process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process
        self._process.kill()
        self._process.wait(60)

    def signal(self, number: signal.Signals) -> None:
        """Any other."""
        assert self._process
        self._process.send_signal(number)

    def wait(self, seconds: float = READY_SECONDS) -> int:
        """Until it ends by itself: the exit code."""
        assert self._process
        return self._process.wait(seconds)

    def terminate(self) -> tuple[int, float]:
        """SIGTERM: the exit code, and the seconds that it took."""
        assert self._process
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(100), time.monotonic() - began

    def stop(self) -> None:
        """At the end of the tests."""
        if self.alive:
            self.kill()
