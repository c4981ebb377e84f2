"""A spare takes the place of a worker whose agent dies, as a user runs it: by the ledger, and by who printed what."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli.main import main
from trainmaster.cli.shown_lines import FirstWorkerLines

from tests.local.command import TASKS, Command, a_job, kill

HELD = {"hold_at": 25}  # steps of a process: those of attempt 2 wait at its 25th as well
STEPS = 60
SPARE: dict[str, Any] = {"scheduling": {"spares": 1}, "checkpoint": {"everySteps": 10, "memoryEverySteps": 1}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, warm_parent: Path) -> str:
    """The SHA-256 of the model at the end without any trouble, and without a spare."""
    folder = tmp_path_factory.mktemp("undisturbed")
    shutil.copy(TASKS / "small.py", folder)
    command = Command(folder, warm_parent)
    assert command.start(a_job(STEPS)).end() == 0
    return str(command.status["checkpoint"]["sha256"])


def printed_by(command: Command, worker: str) -> str:
    """What the ranks of one agent said."""
    log = command.workdir / "logs" / f"small-{worker}.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return " ".join(line for line in lines if "is here" in line)


@pytest.mark.parametrize("lost", [0, 1])
def test_training_goes_on_with_the_spare_and_not_with_the_replacement(
    command: Command, undisturbed: str, lost: int
) -> None:
    command.make_gate()
    command.start(a_job(STEPS, arguments=HELD, **SPARE))
    command.until_step(24)
    command.until_held(0, 1)
    agents = command.agents()
    assert sorted(agents) == [0, 1, 2]
    kill(agents[lost], signal.SIGKILL)
    told = command.until_event("Restarting")["event"]["message"]
    assert f"Spare worker-2 takes the place of worker-{lost}." in told
    command.until_event("Running")
    survivor = 1 - lost
    assert {index: command.agents()[index] for index in (survivor, 2)} == {2: agents[2], survivor: agents[survivor]}
    command.open_gate()
    assert command.end() == 0, command.stderr
    status = command.status
    (line,) = status["restarts"]
    assert "takes the place" in line["why"]
    assert (status["attempt"], status["restartCount"], line["step"]) == (2, 1, 24)
    assert (status["substitutes"], status["incarnations"]) == ({f"worker-{lost}": 2}, {f"worker-{lost}": 1})
    assert status["checkpoint"]["sha256"] == undisturbed
    assert printed_by(command, "worker-2-0") == f"rank {lost} is here", "the lost rank, in attempt 2"
    assert printed_by(command, f"worker-{lost}-1") == "", "the replacement stood by"
    metrics = [
        json.loads(text) for text in (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    ]
    assert next(line["step"] for line in metrics if line["attempt"] == 2) == 25, "no completed step was lost"


def test_the_loss_of_a_spare_is_no_failure(command: Command) -> None:
    command.make_gate()
    command.start(a_job(STEPS, arguments=HELD, **SPARE))
    command.until_step(24)
    kill(command.agents()[2], signal.SIGKILL)
    told = command.until_event("ReplicaReplaced")["event"]["message"]
    assert "training is not disturbed" in told
    command.open_gate()
    assert command.end() == 0
    status = command.status
    assert (status["attempt"], status.get("restarts", []), status["incarnations"]) == (1, [], {"worker-2": 1})


def test_one_worker_survives_its_loss_by_its_spare(command: Command, undisturbed: str) -> None:
    """Nobody is left but the checkpoint of step 20."""
    command.make_gate()
    command.start(a_job(STEPS, arguments=HELD, workers=1, **SPARE))
    command.until_step(24)
    kill(command.agents()[0], signal.SIGKILL)
    command.until_event("Running")
    command.open_gate()
    assert command.end() == 0
    status = command.status
    assert (status["attempt"], status["substitutes"], status["progress"]["step"]) == (2, {"worker-0": 1}, STEPS)
    assert printed_by(command, "worker-1-0") == "rank 0 is here"


def test_who_took_the_first_place_is_whose_output_is_shown() -> None:
    lines = FirstWorkerLines()
    assert lines.take("small-worker-0-0", b"one\n") == ["one"]
    assert lines.take("small-worker-2-0", b"standing by\n") == []
    lines.follow(TrainingJobStatus(substitutes={"worker-0": 2}))
    assert lines.take("small-worker-0-1", b"standing by\n") == []
    assert lines.take("small-worker-2-0", b"two\n") == ["two"]


def test_explain_and_render_tell_of_spares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(a_job(training={"command": ["python", "train.py"]}, **SPARE)))
    assert main(["render", str(path)]) == 0
    pods = [one["metadata"]["name"] for one in yaml.safe_load_all(capsys.readouterr().out) if one["kind"] == "Pod"]
    assert pods == ["small-worker-0-0", "small-worker-1-0", "small-worker-2-0"]
    assert main(["explain", str(path)]) == 0
    told = capsys.readouterr().out
    assert "1 more worker stands by as a spare" in told
    assert "a spare takes its place" in told
