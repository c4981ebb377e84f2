"""A workdir that was used before, or is being used."""

from __future__ import annotations

import json

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


def test_a_second_run_in_a_workdir_is_refused_and_the_first_is_not_disturbed(command: Command) -> None:
    """The message says what to do."""
    command.make_gate()
    command.start(a_job(arguments={"hold_at": 15}))
    command.until_step(14)
    second = Command(command.folder, None)
    assert second.start(command.folder / "job.yaml").end() == 1
    assert "in use by another run" in (command.folder / "stderr").read_text()
    command.open_gate()
    assert command.end() == 0
    assert command.status["restartCount"] == 0
