"""Fixtures of the local tests: the command as a process, and one warm parent that most of them share."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.local.command import TASKS, Command, abandoned_scratch, start_warm_parent, wait_gone, what_it_is

MakeCommand = Callable[[], Command]


@pytest.fixture(scope="session")
def warm_parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Importing torch takes seconds: once for all tests but those about the start itself."""
    socket = tmp_path_factory.mktemp("warm") / "socket"
    process = start_warm_parent(Path(sys.executable), socket)
    yield socket
    process.terminate()
    process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's folder: the task lies beside the YAML."""
    shutil.copy(TASKS / "small.py", tmp_path)
    return tmp_path


@pytest.fixture
def command(folder: Path, warm_parent: Path) -> Iterator[Command]:
    """A command that shares the warm parent. Nothing of it may be left when the test ends."""
    one = Command(folder, warm_parent)
    yield one
    left = {what_it_is(pid) for pid in one.processes() if not wait_gone(pid)}
    one.close()
    assert not left, f"these processes were left: {left}"
    assert not abandoned_scratch()


@pytest.fixture
def own_command(folder: Path) -> Iterator[Command]:
    """A command with a warm parent of its own."""
    one = Command(folder, None)
    yield one
    left = {what_it_is(pid) for pid in one.processes() if not wait_gone(pid)}
    one.close()
    assert not left, f"these processes were left: {left}"
