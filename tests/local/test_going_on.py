"""A workdir that was used before, or is being used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainmaster.api.status import Progress, TrainingJobStatus
from trainmaster.local.session import begin
from trainmaster.local.workdir import Workdir

from tests import builders
from tests.local.command import Command, a_job


def steps_trained(command: Command) -> list[int]:
    """As the metrics tell."""
    lines = (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    return [line["step"] for line in map(json.loads, lines) if "loss" in line]


def test_the_same_workdir_again_goes_on_to_more_steps(command: Command) -> None:
    """From the newest checkpoint, as an attempt of its own."""
    assert command.start(a_job(steps=20)).end() == 0
    assert command.start(a_job(steps=30)).end() == 0
    assert command.status["attempt"] == 2
    assert command.status["progress"]["step"] == 30
    assert steps_trained(command) == list(range(1, 31))


def test_a_job_that_is_through_is_succeeded_again_with_the_same_model(command: Command) -> None:
    """Nothing is trained anew."""
    assert command.start(a_job(steps=20)).end() == 0
    before = command.status["checkpoint"]["sha256"]
    assert command.start(a_job(steps=20)).end() == 0
    assert command.status["checkpoint"]["sha256"] == before
    assert steps_trained(command) == list(range(1, 21))


@pytest.mark.parametrize("strategy", ["AllReduce", "ParameterServer", "Gossip"])
def test_fewer_steps_than_were_trained_is_said_to_be_nothing_to_train(command: Command, strategy: str) -> None:
    """And the model, its lines and its figures stay those of the later step."""
    assert command.start(a_job(steps=20, strategy={"type": strategy})).end() == 0
    result = command.workdir / "checkpoints" / "result.json"
    assert command.start(a_job(steps=5, strategy={"type": strategy}), "--output", "text").end() == 0
    assert command.status["message"].startswith("The newest checkpoint is of step 20, beyond spec.training.steps (5)")
    assert f"Succeeded: {command.status['message']}" in command.text
    assert "5/5" not in command.text
    assert command.status["progress"]["step"] == 20
    assert steps_trained(command) == list(range(1, 21))
    assert json.loads(result.read_text())["step"] == 20


def test_a_second_run_in_a_workdir_is_refused_and_the_first_is_not_disturbed(command: Command) -> None:
    """The message says what to do."""
    command.make_gate()
    command.start(a_job(arguments={"hold_at": 15}))
    command.until_step(14)
    second = Command(command.folder, None)
    assert second.start(command.folder / "job.yaml").end() == 2
    assert "in use by another run" in (command.folder / "stderr").read_text()
    command.open_gate()
    assert command.end() == 0
    assert command.status["restartCount"] == 0


@pytest.mark.parametrize(
    ("phase", "step", "kept"),
    [("Running", 40, 50), ("Restarting", 74, 50), ("Running", 90, None), ("Failed", 74, None)],
)
def test_after_a_bad_loss_the_next_run_goes_back_as_far(
    tmp_path: Path, phase: str, step: int, kept: int | None
) -> None:
    """Unless training has passed it, or the job has ended by it: somebody has changed something then."""
    with Workdir(tmp_path) as workdir:
        progress = Progress(step=step)
        workdir.write_status(TrainingJobStatus(phase=phase, attempt=2, resume_before=50, progress=progress))
        status = begin(builders.a_job().build(), workdir).status
    assert (status.attempt, status.resume_before) == (3, kept)
