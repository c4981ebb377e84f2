"""Fixtures of the trainer's tests."""

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
