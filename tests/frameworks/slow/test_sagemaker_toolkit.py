"""The real toolkit of SageMaker: its `train` in folders that we have laid out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.frameworks.jobs import a_job, line_of_the_ledger, python, said, until
from tests.frameworks.test_sagemaker import results
from tests.local.command import Command


def with_toolkit(folder: Path, lr: float = 0.1, **env: str) -> dict[str, Any]:
    """A job of the toolkit's `train`: two hosts, and a channel in a folder beside the YAML."""
    (folder / "rows").mkdir()
    (folder / "rows" / "rows.txt").write_text("1 2 3 4 5")
    train = Path(python("sagemaker")).with_name("train")
    job = a_job("SageMaker", [str(train)], SM_CHANNEL_TRAIN="rows", **env)
    arguments = {"sagemaker_program": "sagemaker_sum.py", "epochs": 2, "lr": lr}
    job["spec"]["training"]["arguments"] = arguments
    return job


def test_the_toolkits_train_has_hosts_channels_and_hyperparameters_also_after_a_death(
    command: Command, folder: Path
) -> None:
    """A script is killed after the exchange. Its checkpoints are there again, and its model is kept."""
    assert command.start(with_toolkit(folder, DIE="1")).end() == 0
    right = [line for line in said(command, "RIGHT") if line.endswith("before=1")]
    assert right == ["hosts=2 rank=0 total=30 before=1", "hosts=2 rank=1 total=30 before=1"]
    line = line_of_the_ledger(command)
    assert (line["exit"], line["replica"]) == ("SIGKILL", "worker-1 rank 1")
    assert {path.name: json.loads(path.read_text()) for path in (results(command) / "model").iterdir()} == {
        "part-0.json": 30,
        "part-1.json": 30,
    }
    assert not [*(results(command) / "unfinished").iterdir()]
    until(lambda: not command.processes())


def test_the_toolkits_failure_is_the_evidence(command: Command, folder: Path) -> None:
    assert command.start(with_toolkit(folder, lr=2.0)).end() == 1
    status = command.status
    assert status["phase"] == "Failed"
    assert "ValueError: bad learning rate (" in status["restarts"][-1]["evidence"]
    assert not (results(command) / "model").exists()
