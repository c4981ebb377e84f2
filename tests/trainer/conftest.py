"""Fixtures of the trainer's tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.trainer.crew import Crew, NewCrew
from tests.trainer.ranks import Forker, Job, NewJob, make_job

# As in ranks: threads that wait for one another on two busy cores cost more than they gain.
torch.set_num_threads(1)


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


@pytest.fixture
def new_crew(new_job: NewJob) -> Iterator[NewCrew]:
    """Make a crew, under ParameterServer if it has servers, else Gossip; whoever is left of it at the end is killed."""
    crews: list[Crew] = []

    def make(
        workers: int, servers: int = 0, name: str = "job", attempt: int = 1, job: Job | None = None, **changes: object
    ) -> Crew:
        strategy = "ParameterServer" if servers else "Gossip"
        job = job or new_job(name, **{"strategy": strategy, **changes})
        crews.append(Crew(job, workers, servers, attempt))
        return crews[-1]

    yield make
    for crew in crews:
        crew.close()


@pytest.fixture(scope="module")
def saved(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 2, 4 and 6, written by two ranks."""
    return make_job(forker, tmp_path_factory.mktemp("saved")).run(2).checkpoints()


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of them, to be harmed."""
    return shutil.copytree(saved, tmp_path / "checkpoints")
