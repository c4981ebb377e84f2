"""Fixtures of the tests with real frameworks: the local command, and the environments of `make setup-frameworks`."""

from __future__ import annotations

from tests.local.conftest import command, warm_parent

__all__ = ["command", "folder", "warm_parent"]

import shutil
from pathlib import Path

import pytest

from tests.frameworks.jobs import SCRIPTS
from tests.local.command import TASKS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's folder: the scripts, and a small task, lie beside the YAML."""
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    shutil.copy(TASKS / "small.py", tmp_path)
    return tmp_path
