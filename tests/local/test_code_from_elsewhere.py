"""`trainmaster run` with code of a repository and packages of pip: the words of the cluster, on one machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent import wheels
from tests.git_server import GitServer, commit
from tests.local.command import Command, a_job, a_script

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
