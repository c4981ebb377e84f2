"""Followers of metrics.jsonl and the real trackers: one run whatever restarts, and trackers that are not there."""

from __future__ import annotations

import contextlib
import math
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs import a_job, python, until
from tests.frameworks.trackers import OURS, a_collector, a_server_of_mlflow, kept
from tests.local.command import Command
from tests.local.command import a_job as a_task

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


def assert_run_of_mlflow(runs: Any) -> None:
    (run,) = runs
    assert run["status"] == "FINISHED"
    assert {tuple(one) for one in run["metrics"]["loss"]} >= {*AFTER_THE_RESTART}
    assert {tuple(one) for one in run["metrics"]["loss"]} <= {*AFTER_THE_RESTART, *TWICE}
    assert run["metrics"]["attempt"][-1] == [21, 2]
    assert run["tags"]["trainmaster.restarts"] == "1"
    assert run["parameters"]["strategy"] == "OneDevice"


def assert_offline_files(found: Any) -> None:
    assert len({*found["runs"]}) == 1
    newest = {point["step"]: point["loss"] for point in found["points"]}
    assert sorted(newest.items()) == AFTER_THE_RESTART
    assert found["configuration"]["strategy"] == "OneDevice"


def assert_what_was_sent(found: Any) -> None:
    losses = {value for _, value in found["metrics"]["trainmaster.training.loss"]}
    assert losses >= {value for _, value in AFTER_THE_RESTART}
    assert found["resource"]["trainmaster.job"] == "default/torch"
    assert {value for _, value in found["metrics"]["trainmaster.training.attempt"]} == {1, 2}


def test_trackers_that_are_not_there_cost_no_step_and_are_one_condition(command: Command, folder: Path) -> None:
    """A library is missing, a server hangs, a folder is a file: all steps are trained."""
    (folder / "file").touch()
    command.make_gate()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = a_task(steps=40, workers=1, arguments={"hold_at": 35})
        job["spec"]["training"]["trackers"] = {
            "tensorBoard": {"folder": str(folder / "file")},
            "mlflow": {"url": "http://127.0.0.1:9"},
            "openTelemetry": {"url": f"http://127.0.0.1:{silent.getsockname()[1]}"},
        }
        command.start(job).until_step(30)
        until(lambda: "MLflow: " in told_of_trackers(command) and "TensorBoard: " in told_of_trackers(command))
        command.open_gate()
        assert command.end() == 0
    assert "pip install mlflow-skinny" in told_of_trackers(command)
    log = (command.workdir / "logs" / "small-worker-0-0.log").read_text()
    assert "OpenTelemetry was not told of the last steps; metrics.jsonl has them" in log
    assert command.status["progress"]["step"] == 40


def test_a_variable_chooses_a_tracker_and_its_typo_is_named(command: Command) -> None:
    command.make_gate()
    job = a_task(steps=40, workers=1, arguments={"hold_at": 35})
    command.start(job, MLFLOW_TRACKING_URI="htp://mlflow:5000").until_step(30)
    until(lambda: bool(told_of_trackers(command)))
    command.open_gate()
    assert command.end() == 0
    assert "MLFLOW_TRACKING_URI is 'htp://mlflow:5000', which is not the URL of a server" in told_of_trackers(command)


def test_followers_end_with_a_run_that_is_killed_and_the_next_one_goes_on(command: Command) -> None:
    """The fixture finds what is left. Each step is told once all the same."""
    command.make_gate()
    job = a_task(steps=20, workers=1, arguments={"hold_at": 15})
    job["spec"]["training"]["trackers"] = {"tensorBoard": {}}
    state = command.workdir / "checkpoints" / "trackers" / "tensorBoard" / "state.json"
    command.start(job)
    until(state.exists)
    command.send(signal.SIGKILL)
    command.process.wait()
    until(lambda: not command.processes())
    command.open_gate()
    assert command.start(job).end() == 0
    losses = kept("tensorboard", command.workdir / "checkpoints" / "tensorboard")["scalars"]["loss"]
    assert [step for step, _ in losses] == [*range(1, 21)]


PRINTING = """
import time
for step in range(1, 31):
    time.sleep(0.2)
    print(f"step {step}/30 loss={1 / step}", flush=True)
"""


def test_steps_that_a_script_only_prints_are_told_once_a_second(command: Command, folder: Path) -> None:
    job = a_job("Torch", ["python", "prints.py"], 1)
    (folder / "prints.py").write_text(PRINTING)
    job["spec"]["strategy"]["type"] = "OneDevice"
    job["spec"]["training"] |= {
        "trackers": {"tensorBoard": {}},
        "progress": {"loss": "loss=([0-9.]+)", "step": r"step (\d+)/"},
    }
    assert command.start(job).end() == 0
    losses = dict(kept("tensorboard", command.workdir / "checkpoints" / "tensorboard")["scalars"]["loss"])
    assert len(losses) >= 3
    assert losses == pytest.approx({step: 1 / step for step in losses})
    assert max(losses) == 30


def told_of_trackers(command: Command) -> str:
    """The message of the condition; empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        for one in command.status["conditions"]:
            if one["type"] == "TrackersReached":
                assert (one["status"], one["reason"]) == ("False", "TrackerUnreachable")
                return str(one["message"])
    return ""
