"""Scripts of TensorFlow: workers that reduce, and a chief whose servers are told to leave when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.jobs import a_job, line_of_the_ledger, python, said
from tests.local.command import Command


def with_servers(**env: str) -> dict[str, Any]:
    """A chief, a worker and two servers."""
    job = a_job("TensorFlow", [python("tensorflow"), "tensorflow_servers.py"], **env)
    job["spec"]["strategy"] = {"type": "ParameterServer"}
    job["spec"]["parameterServers"] = {"replicas": 2}
    job["spec"]["failurePolicy"] = {"maxRestarts": 0}
    return job


@pytest.mark.parametrize("collectives", ["AUTO", "RING"])
def test_workers_go_on_from_tensorflows_own_checkpoint(command: Command, collectives: str) -> None:
    script = [python("tensorflow"), "tensorflow_mirrored.py"]
    job = a_job("TensorFlow", script, DIE_IN_ATTEMPT="1", COLLECTIVES=collectives)
    assert command.start(job).end() == 0
    assert said(command, "RIGHT") == ["processes=2 from=20"] * 2
    assert line_of_the_ledger(command)["exit"] == "SIGKILL"


def test_the_job_ends_with_the_chief_and_nothing_serves_on(command: Command) -> None:
    assert command.start(with_servers()).end() == 0
    assert said(command, "RIGHT") == ["shards=2"]
    assert command.status["message"].startswith("worker-0, which leads the others, finished.")


def test_a_chief_that_fails_while_servers_live_fails_the_job(command: Command) -> None:
    assert command.start(with_servers(CHIEF_ENDS_WITH="3")).end() == 1
    status = command.status
    assert status["phase"] == "Failed"
    assert line_of_the_ledger(command)["replica"] == "worker-0 rank 0"
    assert line_of_the_ledger(command)["exit"] == "exit code 3"


def test_a_variable_that_stops_tensorflows_servers_is_refused(command: Command) -> None:
    assert command.start(with_servers(TF_NUM_INTEROP_THREADS="1")).end() == 1
    assert "TF_NUM_INTEROP_THREADS=1 stops TensorFlow's servers for ever" in command.status["message"]


@pytest.mark.parametrize("strategy", ["Mirrored", "OneDevice"])
def test_one_process_has_all_devices(command: Command, strategy: str) -> None:
    """Two devices of a worker are one rank's; nobody else is to be found, so there is no TF_CONFIG."""
    program = "import os; print('RIGHT', os.environ['WORLD_SIZE'], 'TF_CONFIG' in os.environ)"
    job = a_job("TensorFlow", [python("tensorflow"), "-c", program], 1)
    job["spec"]["strategy"] = {"type": strategy}
    job["spec"]["workers"]["gpus"] = 2 if strategy == "Mirrored" else 1
    assert command.start(job).end() == 0
    assert said(command, "RIGHT") == ["1 False"]


@pytest.mark.parametrize(
    ("strategy", "kind", "devices"),
    [
        ("OneDevice", "OneDevice", 1),
        ("Mirrored", "Mirrored", 4),
        ("Mirrored", "HierarchicalCopy", 4),
        ("Mirrored", "ReductionToOneDevice", 4),
        ("CentralStorage", "CentralStorage", 4),
    ],
)
def test_the_strategies_of_one_process_train_on_all_its_devices(
    command: Command, strategy: str, kind: str, devices: int
) -> None:
    """Parts of a CPU are the devices here."""
    job = a_job("TensorFlow", [python("tensorflow"), "tensorflow_alone.py"], 1, STRATEGY=kind)
    job["spec"]["strategy"] = {"type": strategy}
    assert command.start(job).end() == 0
    assert said(command, "RIGHT") == [f"devices={devices}"]
