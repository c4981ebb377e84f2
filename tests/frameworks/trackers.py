"""Trackers for the tests: a real server of MLflow, a collector that keeps what it is sent; and what they have kept."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trainmaster
import trainmaster_trainer

from tests.frameworks.jobs import SCRIPTS, python, until

# Where a Python of another environment finds `trainmaster_trainer.session`.
OURS = ":".join(str(Path(path).parent) for module in (trainmaster, trainmaster_trainer) for path in module.__path__)


def kept(reader: str, place: object) -> Any:
    """What one of the scripts prints, which read with the tracker's own library."""
    words = [python("trackers"), str(SCRIPTS / f"read_{reader}.py"), str(place)]
    return json.loads(subprocess.run(words, capture_output=True, check=True, timeout=120).stdout)


@contextlib.contextmanager
def a_server_of_mlflow(folder: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve MLflow from sqlite; the URL, at which it answers."""
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://{host}:{port}"
    words = ["server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--port", str(port), "--workers", "1"]
    words += ["--host", host, "--allowed-hosts", f"{host}:{port}"]
    log = (folder / "mlflow.log").open("wb")
    process = subprocess.Popen(
        [python("trackers"), "-m", "mlflow", *words], cwd=folder, stdout=log, stderr=log, start_new_session=True
    )
    try:
        until(lambda: process.poll() is not None or _answers(f"{url}/health"), 400)  # it makes its tables first
        assert process.poll() is None, (folder / "mlflow.log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait(100)


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 http
        return bool(answer.status == 200)
    return False


@contextlib.contextmanager
def a_collector(folder: Path, host: str = "127.0.0.1", status: int = 200) -> Iterator[str]:
    """Keep each request's body as a file of the folder, and answer with this status; the URL."""
    folder.mkdir()

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            (folder / f"{len([*folder.iterdir()]):04}").write_bytes(body)
            self.send_response(status)
            self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((host, 0), Keep)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
