"""Containers made for SageMaker, which know its folders: what they find, how they fail, and what is kept of them.

Its toolkit is in slow/test_sagemaker_toolkit.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs import a_job, line_of_the_ledger
from tests.local.command import Command, abandoned_scratch


def results(command: Command) -> Path:
    """What the job keeps."""
    return command.workdir / "checkpoints" / "sagemaker"


def a_container(**env: str) -> dict[str, Any]:
    """A job of a program that knows the folders only."""
    job = a_job("SageMaker", ["sh", "container.sh"], 1, **env)
    job["spec"]["training"]["arguments"] = {"epochs": 3}
    job["spec"]["failurePolicy"] = {"maxRestarts": 0}
    return job


def test_a_container_without_the_toolkit_has_its_folders(command: Command) -> None:
    assert command.start(a_container()).end() == 0
    assert (results(command) / "model" / "weights.txt").read_text() == "weights\n"
    assert (results(command) / "output" / "figures.txt").read_text() == "figures\n"
    assert not abandoned_scratch()


@pytest.mark.parametrize("ends_with", ["0", "1"])
def test_who_has_written_a_failure_has_not_succeeded(command: Command, ends_with: str) -> None:
    assert command.start(a_container(FAILS="1", ENDS_WITH=ends_with)).end() == 1
    assert "Exception during training: no rows in channel train" in line_of_the_ledger(command)["evidence"]


def test_folders_that_cannot_be_made_are_named(command: Command, folder: Path) -> None:
    (folder / "taken").write_text("")
    assert command.start(a_container(SAGEMAKER_BASE_DIR="taken/ml")).end() == 1
    assert "taken/ml cannot be made (Not a directory" in command.status["message"]
    assert command.status.get("restartCount", 0) == 0


def test_a_channel_that_is_not_there_is_named(command: Command) -> None:
    assert command.start(a_container(SM_CHANNEL_TRAIN="nowhere")).end() == 1
    assert "SM_CHANNEL_TRAIN: there is no folder" in command.status["message"]
