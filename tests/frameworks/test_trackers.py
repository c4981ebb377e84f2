"""Followers of metrics.jsonl: trackers that are not there, runs that are killed, steps that are printed.

`slow/test_trackers_of_libraries.py` has those of all libraries at once.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from pathlib import Path

import pytest

from tests.frameworks.jobs import a_job, python, until
from tests.frameworks.trackers import OURS, a_collector, kept
from tests.local.command import Command
from tests.local.command import a_job as a_task


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
    assert "-m pip install mlflow-skinny" in told_of_trackers(command)
    log = (command.workdir / "logs" / "small-worker-0-0.log").read_text()
    assert "OpenTelemetry was not told of the last steps; metrics.jsonl has them" in log
    assert command.status["progress"]["step"] == 40


REPORTING = """
import time
from pathlib import Path
from trainmaster_trainer import session
step = 0
while not Path("told").exists():
    step += 1
    session.report(step=step, loss=1.0)
    time.sleep(0.1)
"""
CURES = ("MLFLOW_TRACKING_PASSWORD", "set WANDB_API_KEY right", "OTEL_EXPORTER_OTLP_HEADERS")


def test_credentials_that_are_turned_away_are_one_condition_with_the_cure(command: Command, folder: Path) -> None:
    """Training goes on, and no status has the password of a URL. Each try of W&B's library finds what the first did."""
    with a_collector(folder / "asked", status=401) as server:
        job = a_job("Torch", [python("trackers"), "reports.py"], 1, PYTHONPATH=OURS, WANDB_API_KEY="0" * 40)
        (folder / "reports.py").write_text(REPORTING)
        job["spec"]["strategy"]["type"] = "OneDevice"
        trackers = {"wandb": {"url": server}, "openTelemetry": {"url": server}}
        job["spec"]["training"]["trackers"] = {"mlflow": {"url": server.replace("//", "//me:secret@")}, **trackers}
        command.start(job)
        until(lambda: all(cure in told_of_trackers(command) for cure in CURES))
        until(lambda: sum(b"ResumeStatus" in one.read_bytes() for one in (folder / "asked").iterdir()) > 1)
        (folder / "told").touch()
        assert command.end() == 0
    assert "secret" not in told_of_trackers(command)
    assert all(cure in told_of_trackers(command) for cure in CURES)
    assert "is in use" not in (command.workdir / "logs" / "torch-worker-0-0.log").read_text()
    assert command.status["restartCount"] == 0


def test_the_first_word_of_a_tracker_is_heard_after_the_end_too(command: Command, folder: Path) -> None:
    """The job is over before any follower has begun, and what each of them says is still news."""
    (folder / "file").touch()
    job = a_task(steps=1, workers=1)
    missing = {name: {"url": "http://127.0.0.1:9"} for name in ("mlflow", "wandb", "openTelemetry")}
    job["spec"]["training"]["trackers"] = {"tensorBoard": {"folder": str(folder / "file")}, **missing}
    assert command.start(job).end() == 0
    told = told_of_trackers(command)
    assert [
        title for title in ("TensorBoard: ", "MLflow: ", "Weights & Biases: ", "OpenTelemetry: ") if title not in told
    ] == []


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
