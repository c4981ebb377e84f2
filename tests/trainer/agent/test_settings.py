"""The environment that the platforms give to an agent."""

from __future__ import annotations

import subprocess
import sys

import pytest
from trainmaster.wire import codec, names
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent import agent_settings

PLAN = TrainingPlan("AllReduce", task="a:B")
COMPLETE = {
    names.ENV_JOB: "default/job",
    names.ENV_JOB_UID: "uid",
    names.ENV_ROLE: "worker",
    names.ENV_INDEX: "3",
    names.ENV_INCARNATION: "1",
    names.ENV_POD_UID: "pod",
    names.ENV_ADDRESS: "10.0.0.1",
    names.ENV_OPERATOR: "http://operator:8080",
    names.ENV_TOKEN_FILE: "/token",
    names.ENV_RANKS: "2",
    names.ENV_TRAINING: codec.encode(PLAN).decode(),
    names.ENV_CHECKPOINTS: "/checkpoints",
    names.ENV_SCRATCH: "/scratch",
}


def test_complete() -> None:
    read = agent_settings.read(COMPLETE)
    assert (read.name, read.ranks, read.plan, read.warm_socket, read.parent_pid) == ("worker/3", 2, PLAN, None, None)


def test_optional() -> None:
    more = {names.ENV_WARM_SOCKET: "/warm", names.ENV_PARENT_PID: "7", names.ENV_GRACE: "1.5"}
    read = agent_settings.read({**COMPLETE, **more})
    assert (read.warm_socket, read.parent_pid, read.grace_seconds) == ("/warm", 7, 1.5)


@pytest.mark.parametrize("name", COMPLETE)
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(agent_settings.SettingsError, match=f"{name} is missing"):
        agent_settings.read({key: value for key, value in COMPLETE.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [(names.ENV_INDEX, "-1"), (names.ENV_RANKS, "two"), (names.ENV_TRAINING, "{}"), (names.ENV_GRACE, "nan")],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(agent_settings.SettingsError, match=name):
        agent_settings.read({**COMPLETE, name: value})


def test_the_agent_says_it_in_one_line() -> None:
    command = [sys.executable, "-m", "trainmaster_trainer.agent"]
    environment = {key: value for key, value in COMPLETE.items() if key != names.ENV_OPERATOR}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == names.EXIT_BAD_CONFIGURATION
    assert ended.stderr == f"trainmaster agent: the environment variable {names.ENV_OPERATOR} is missing\n"
