"""Followers of metrics.jsonl and the real trackers, a server of MLflow among them: one run whatever restarts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs import a_job, python
from tests.frameworks.trackers import OURS, a_collector, a_server_of_mlflow, kept
from tests.local.command import Command

AFTER_THE_RESTART = [(step, step + (0.1 if step <= 20 else 0.2)) for step in range(1, 41)]
TWICE = [(step, step + 0.1) for step in range(21, 31)]  # told before the restart as well


def test_each_tracker_has_one_run_with_every_step_after_a_restart(command: Command, folder: Path) -> None:
    """A script reports NaN too, and its process is killed ten steps after those that it goes on from."""
    with a_server_of_mlflow(folder) as mlflow, a_collector(folder / "otlp") as collector:
        job = a_job("Torch", [python("trackers"), "tracked.py"], 1, PYTHONPATH=OURS, LINGER="3")
        job["spec"]["strategy"]["type"] = "OneDevice"
        job["spec"]["training"]["trackers"] = {
            "tensorBoard": {},
            "mlflow": {"url": mlflow},
            "wandb": {"mode": "offline"},
            "openTelemetry": {"url": collector},
        }
        assert command.start(job).end() == 0
        assert command.status["restartCount"] == 1
        home = command.workdir / "checkpoints"
        assert_event_files(kept("tensorboard", home / "tensorboard"))
        assert_run_of_mlflow(kept("mlflow", mlflow))
        assert_offline_files(kept("wandb", home / "wandb"))
        assert_what_was_sent(kept("otlp", folder / "otlp"))


def assert_event_files(found: Any) -> None:
    """What was cut off is dropped, and told once more under the same step. A NaN is one."""
    losses = found["scalars"]["loss"]
    assert [step for step, _ in losses] == [*range(1, 41)]
    assert [value for _, value in losses] == pytest.approx([value for _, value in AFTER_THE_RESTART])
    odd = dict(found["scalars"]["odd"])
    assert math.isnan(odd[5])
    assert odd[6] == 0.5
    assert found["texts"]["restarts"] == ["Attempt 2 began with step 21."]
    assert "| command | " in found["texts"]["parameters"][0]


def assert_run_of_mlflow(runs: Any, strategy: str = "OneDevice") -> None:
    (run,) = runs
    assert run["status"] == "FINISHED"
    assert {tuple(one) for one in run["metrics"]["loss"]} >= {*AFTER_THE_RESTART}
    assert {tuple(one) for one in run["metrics"]["loss"]} <= {*AFTER_THE_RESTART, *TWICE}
    assert run["metrics"]["attempt"][-1] == [21, 2]
    assert run["tags"]["trainmaster.restarts"] == "1"
    assert run["parameters"]["strategy"] == strategy


def assert_offline_files(found: Any, strategy: str = "OneDevice") -> None:
    assert len({*found["runs"]}) == 1
    newest = {point["step"]: point["loss"] for point in found["points"]}
    assert sorted(newest.items()) == AFTER_THE_RESTART
    assert found["configuration"]["strategy"] == strategy


def assert_what_was_sent(found: Any, job: str = "default/torch") -> None:
    losses = {value for _, value in found["metrics"]["trainmaster.training.loss"]}
    assert losses >= {value for _, value in AFTER_THE_RESTART}
    assert found["resource"]["trainmaster.job"] == job
    assert {value for _, value in found["metrics"]["trainmaster.training.attempt"]} == {1, 2}
