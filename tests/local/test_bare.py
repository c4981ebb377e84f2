"""`trainmaster run` imports torch before it has read the job, unless the file names another framework."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trainmaster.cli.warm_parent import _needs_no_torch


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("spec:\n  training:\n    framework: MPI\n", True),
        ("spec: {training: {framework: Ray, command: [a]}}", True),
        ('{"spec": {"training": {"framework": "JAX"}}}', True),
        ("spec:\n  training:\n    framework: Torch\n", False),
        ("spec: {training: {command: [framework]}}", False),
    ],
)
def test_the_file_tells(tmp_path: Path, text: str, bare: bool) -> None:
    (tmp_path / "job.yaml").write_text(text)
    assert _needs_no_torch(str(tmp_path / "job.yaml")) is bare


def test_what_can_be_read_once_only_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.yaml")
    assert not _needs_no_torch(str(tmp_path / "job.yaml"))
    assert not _needs_no_torch("-")
    assert not _needs_no_torch(str(tmp_path / "nowhere"))
