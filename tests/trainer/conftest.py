"""Fixtures of the trainer's tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.ranks import Forker, NewJob, make_job


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    """One process with torch in it, for all tests."""
    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture
def new_job(forker: Forker, tmp_path: Path) -> NewJob:
    """Make a job in a folder of its own."""
    return lambda name="job", **changes: make_job(forker, tmp_path / name, **changes)


@pytest.fixture(scope="module")
def saved(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 2, 4 and 6, written by two ranks."""
    return make_job(forker, tmp_path_factory.mktemp("saved")).run(2).checkpoints()


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of them, to be harmed."""
    return shutil.copytree(saved, tmp_path / "checkpoints")
