"""A real S3 server for tests (versitygw, which serves a folder), and a proxy before it that can be slow or cut.

The server is built by Go once per version, into the cache folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.ports import free_port
from tests.trainer.ranks import PATIENCE
from tools.onebox.paths import CACHE
from tools.onebox.shell import OneboxError, lock, run, step

VERSION = "v1.8.0"
_FOLDER = CACHE / f"versitygw-{VERSION}"
_PROGRAM = _FOLDER / "versitygw"
BUCKET = "checkpoints"
KEYS = {"AWS_ACCESS_KEY_ID": "trainmaster", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_DEFAULT_REGION": "us-east-1"}


def program() -> Path:
    """The server, built if it is not there: 100 s with a cold cache."""
    with lock(CACHE / "versitygw.lock"):
        if not _PROGRAM.exists():
            if shutil.which("go") is None:
                raise OneboxError("Go 1.26 or newer is needed to build the S3 server: https://go.dev/doc/install")
            with step(f"Building versitygw {VERSION}"):
                package = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
                run("nice", "go", "install", package, environment={**os.environ, "GOBIN": str(_FOLDER)})
    return _PROGRAM


@contextlib.contextmanager
def server(folder: Path) -> Iterator[int]:
    """Serve a folder; the port."""
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    port = free_port()
    secrets = {"ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
    command: list[str | Path] = [program(), "--port", f"127.0.0.1:{port}", "posix", folder]
    process = subprocess.Popen(
        command, env={**os.environ, **secrets}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port)
        yield port
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "the S3 server did not come up"
            time.sleep(0.02)  # it has no other way to say so
        else:
            return


@dataclass
class Proxy:
    """Passes connections on. `cut_after`: bytes of a connection after which it is cut; `pause`: seconds per packet."""

    target: int
    cut_after: int | None = None
    pause: float = 0.0
    seen: int = 0
    accepted: int = 0
    _passing: list[socket.socket] = field(default_factory=list)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def cut(self) -> None:
        """Cut all connections that there are now."""
        while self._passing:
            with contextlib.suppress(OSError):
                self._passing.pop().shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                server = socket.create_connection(("127.0.0.1", self.target))
                self._passing += [client, server]
                threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 14):
                if counted:
                    passed += len(data)
                    self.seen += len(data)
                    time.sleep(self.pause)
                    if self.cut_after is not None and passed > self.cut_after:
                        break
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
            source.shutdown(socket.SHUT_RDWR)
