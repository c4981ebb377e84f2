"""Fixtures of the tests that need a GPU: `make test-gpu` on a machine that has one. Elsewhere they are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.local.command import Command
from tests.local.conftest import command, own_command, warm_parent

__all__ = ["calm", "command", "folder", "own_command", "warm_parent"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot be tried here."""
    if not torch.cuda.is_available():
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason="this machine has no GPU"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's folder: tasks and scripts lie beside the YAML."""
    for part in ("tasks", "scripts"):
        shutil.copytree(HERE / part, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def calm(tmp_path_factory: pytest.TempPathFactory, warm_parent: Path) -> Iterator[Command]:
    """Another run in a folder of its own, for the one that nobody disturbs."""
    other = tmp_path_factory.mktemp("calm")
    for part in ("tasks", "scripts"):
        shutil.copytree(HERE / part, other, dirs_exist_ok=True)
    one = Command(other, warm_parent)
    yield one
    one.close()
