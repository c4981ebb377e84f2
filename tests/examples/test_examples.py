"""Every example trains to its end through the real command, in a copy with fewer steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.local.command import Command

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.yaml"))
# Enough to see that it learns. Whoever adds an example need not be named here.
STEPS = {"digits/job.yaml": 150}
# What is known of the steps of a script: without a changed line, and with one.
SCRIPTS = {"script/job.yaml": "64", "script/report.yaml": "64/64", "script/state.yaml": "64/64"}
FEW_STEPS = 30


def shortened(command: Command, job: str) -> dict[str, Any]:
    """The example with its folder's files, and fewer steps."""
    shutil.copytree((EXAMPLES / job).parent, command.folder, dirs_exist_ok=True)
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / job).read_text())
    training = document["spec"]["training"]
    if "steps" in training:
        training["steps"] = min(training["steps"], STEPS.get(job, FEW_STEPS))
    return document


@pytest.mark.parametrize("job", JOBS)
def test_an_example_succeeds(command: Command, job: str) -> None:
    """With the status that says so, and a checkpoint where the trainer is ours."""
    document = shortened(command, job)
    assert command.start(document, EPOCHS="2").end() == 0
    status = command.seen[-1]
    assert status == command.status
    assert (status["phase"], status["restartCount"]) == ("Succeeded", 0)
    if job in SCRIPTS:
        assert status["progress"]["summary"] == SCRIPTS[job]
        assert status["progress"]["loss"] > 0
    if job == "script/state.yaml":
        assert status["checkpoint"]["step"] == 64
    if "steps" in document["spec"]["training"]:
        assert status["progress"]["summary"] == "{0}/{0}".format(document["spec"]["training"]["steps"])
        assert status["checkpoint"]["step"] == document["spec"]["training"]["steps"]


def test_the_digits_are_learnt(command: Command) -> None:
    """By four workers, with the accuracy on the last lines."""
    assert command.start(shortened(command, "digits/job.yaml"), "--output", "text").end() == 0
    (line,) = [line for line in command.text.splitlines() if line.startswith("  accuracy ")]
    assert float(line.split()[1]) >= 0.95


def test_the_script_example_goes_on_where_it_was(command: Command) -> None:
    """It keeps a checkpoint of its own in the workdir."""
    document = shortened(command, "script/job.yaml")
    assert command.start(document, "--output", "text", EPOCHS="1").end() == 0
    assert command.start(document, "--output", "text", EPOCHS="2").end() == 0
    assert command.text.count("epoch 0 ") == 1
    assert command.text.count("epoch 1 ") == 1
