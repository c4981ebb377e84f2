"""Fixtures of the agent's tests: an intake, agents as processes, a warm parent that most of them share."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainmaster.wire import names
from trainmaster.wire.training import TrainingPlan

from tests.trainer.agent.installed import Installed
from tests.trainer.agent.intake import Intake, Key
from tests.trainer.agent.machine import MARK, SCRIPTS, AgentProcess, Line, SharedParent, Witness, ours, wait_gone

MakeAgent = Callable[..., AgentProcess]


@pytest.fixture(scope="session", autouse=True)
def _mark() -> Iterator[None]:
    os.environ[MARK] = uuid.uuid4().hex
    yield
    del os.environ[MARK]


@pytest.fixture
def intake() -> Iterator[Intake]:
    server = Intake()
    yield server
    server.close()


@pytest.fixture(scope="session")
def shared_parent(_mark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedParent]:
    """Importing torch takes seconds: once for all tests that do not ask for a parent of their own."""
    parent = SharedParent(tmp_path_factory.mktemp("warm"), PYTHONPATH="/of-the-parent")
    yield parent
    parent.close()


@pytest.fixture
def line(shared_parent: SharedParent) -> Iterator[Line]:
    one = Line(shared_parent.path)
    yield one
    one.close()


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    hearing = Witness(tmp_path)
    yield hearing
    hearing.close()


@pytest.fixture
def agent(tmp_path: Path, intake: Intake, shared_parent: SharedParent) -> Iterator[MakeAgent]:
    """Make and start an agent that runs `command`, or `task`. At the end of the test nothing may be left of any."""
    made: list[AgentProcess] = []

    def make(
        *command: str,
        ranks: int = 1,
        index: int = 0,
        role: str = names.WORKER,
        python: str = sys.executable,
        task: str | None = None,
        folder: Path | None = None,
        **variables: str,
    ) -> AgentProcess:
        key: Key = (role, index)
        words = tuple(part.replace("SCRIPTS", str(SCRIPTS)) for part in command)
        plan = TrainingPlan("AllReduce", command=words, task=task, working_directory=str(folder or "") or None)
        variables.setdefault(names.ENV_WARM_SOCKET, str(shared_parent.path))
        one = AgentProcess(tmp_path, intake, plan, key, python).start(**{names.ENV_RANKS: str(ranks), **variables})
        made.append(one)
        return one

    yield make
    for one in made:
        one.end()
    _nothing_left(shared_parent)


def _nothing_left(parent: SharedParent) -> None:
    left = {pid: name for pid, name in ours().items() if pid != parent.process.pid and name != "tm-standby"}
    stubborn = {pid: name for pid, name in left.items() if not wait_gone(pid)}
    assert not stubborn, f"these processes were left: {stubborn}"


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)
