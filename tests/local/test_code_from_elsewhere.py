"""`trainmaster run` with code of a repository and packages of pip: the words of the cluster, on one machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from trainmaster.wire import bundle
from trainmaster.wire.bundle import BundleEntry

from tests.git_server import GitServer, commit
from tests.local.command import Command, a_job, a_script
from tests.trainer.agent import wheels

SCRIPT = "import bright, dim, os\nprint('bright', bright.VERSION, 'dim', dim.VERSION, 'in', os.getcwd(), flush=True)\n"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def test_a_commit_with_packages_trains(command: Command, tmp_path: Path) -> None:
    shelf, code = tmp_path / "wheels", tmp_path / "served" / "code"
    wheels.wheel(shelf, "bright", "1.0", needs="dim")
    wheels.wheel(shelf, "dim", "2.1")
    (code / "parts").mkdir(parents=True)
    (code / "parts" / "train.py").write_text(SCRIPT)
    (code / "parts" / "requirements.txt").write_text("bright\n")
    with GitServer(tmp_path / "served").serving() as server:
        training: dict[str, Any] = {
            "command": ["python", "train.py"],
            "workingDirectory": "parts",
            "code": {"git": {"repository": f"{server.url}/code/.git", "commit": commit(code)}},
            "packages": {"requirements": "requirements.txt", "wheels": {"path": str(shelf)}},
        }
        job = {**a_script("", tmp_path), "spec": {"strategy": {"type": "OneDevice"}, "training": training}}
        assert command.start(job, "--output", "text").end() == 0, command.stderr + command.text
    assert "bright 1.0 dim 2.1 in " in command.text


def test_what_never_comes_ends_the_job(command: Command, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    job = a_job(workers=1)
    job["spec"]["training"]["packages"] = {"names": ["none-of-this==1"], "wheels": {"path": str(tmp_path / "wheels")}}
    assert command.start(job).end() == 1, command.stderr
    (line,) = command.status["restarts"]
    assert (line["class"], line["decision"]) == ("Configuration", "Stop")
    assert "spec.training.packages: there is no such package or version: " in line["evidence"]


class LateServer:
    """A web server of a folder, whose port is closed until it is let answer."""

    def __init__(self, folder: Path) -> None:
        handler = partial(SimpleHTTPRequestHandler, directory=folder)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False)
        self._server.server_bind()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer until the end of the block."""
        self._server.server_activate()
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def test_a_server_that_comes_up_later_costs_attempts_and_not_the_job(command: Command, tmp_path: Path) -> None:
    packed = bundle.compress(bundle.pack([BundleEntry("train.py", b"print('it trains at last', flush=True)\n")]))
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "code.tar.gz").write_bytes(packed)
    server = LateServer(tmp_path / "served")
    url = {"address": f"{server.url}/code.tar.gz", "sha256": hashlib.sha256(packed).hexdigest()}
    training = {"command": ["python", "train.py"], "code": {"url": url}}
    command.start({**a_script("", tmp_path), "spec": {"strategy": {"type": "OneDevice"}, "training": training}})
    command.until(lambda line: line.get("event", {}).get("reason") == "Restarting")
    with server.answering():
        assert command.end() == 0, command.stderr
    (line, *_) = command.status["restarts"]
    assert (line["class"], line["decision"]) == ("ServiceUnavailable", "Restart")
    assert f"spec.training.code: {url['address']} cannot be reached" in line["evidence"]
