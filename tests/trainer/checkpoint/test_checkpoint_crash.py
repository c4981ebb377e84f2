"""A rank is killed just before each change that it makes to the disk: the last good checkpoint always loads.

The rank starts with a checkpoint of step 2, saves step 4, and drops the older one; the kill wanders through all
of it, the metrics file included. Afterwards the same job runs undisturbed and must end like one that never died.
"""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from trainmaster.wire import names
from trainmaster_trainer.checkpoint.layout import saved_steps
from trainmaster_trainer.checkpoint.load import read

from tests.trainer.ranks import Forker, Job, make_job

MANY = 30
KEEP_ONE = {"checkpoint_keep": 1, "steps": 4}
RESUMES_EVERY = 4  # all calls are looked at; a run of the job after each would take long


@pytest.fixture(scope="module")
def begun(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(forker, tmp_path_factory.mktemp("begun"), **KEEP_ONE).but(steps=2).run(1)


@pytest.fixture(scope="module")
def undisturbed(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(forker, tmp_path_factory.mktemp("undisturbed"), **KEEP_ONE).run(1)


def test_a_kill_before_any_change_of_the_disk_costs_steps_only(
    forker: Forker, tmp_path: Path, begun: Job, undisturbed: Job
) -> None:
    for number in itertools.count(1):
        job = make_job(forker, tmp_path / f"call-{number}", **KEEP_ONE)
        shutil.copytree(begun.checkpoints(), job.checkpoints())
        running = dying(job, rank=0, number=number).start(1, attempt=2)
        codes = running.wait()
        if codes == [0]:
            break
        assert codes == [-9], running.output()
        assert_good(job)
        if number % RESUMES_EVERY == 0:
            job.run(1, attempt=3)
            assert job.losses() == undisturbed.losses()
            assert job.manifest(4)["model_sha256"] == undisturbed.manifest(4)["model_sha256"]
    assert number > MANY, "the kill must have met the whole of a save"


def test_a_checkpoint_that_is_saved_once_more_is_good_at_every_moment(
    forker: Forker, tmp_path: Path, begun: Job
) -> None:
    """It is one that nobody trusts any more (`resume_before`), and still better than none."""
    attempts = set()
    for number in itertools.count(15):
        job = make_job(forker, tmp_path / f"call-{number}", **KEEP_ONE).but(steps=2)
        shutil.copytree(begun.checkpoints(), job.checkpoints())
        running = dying(job, rank=0, number=number, **{names.ENV_RESUME_BEFORE: "2"}).start(1, attempt=2)
        codes = running.wait()
        assert codes in ([0], [-9]), running.output()
        assert_good(job)
        attempts.add((job.manifest(2)["attempt"], codes[0]))
        if codes == [0]:
            break
    assert attempts == {(1, -9), (2, -9), (2, 0)}


def test_nothing_is_committed_when_a_peer_dies_in_its_part_of_it(forker: Forker, tmp_path: Path) -> None:
    for number in range(1, 7):  # mkdir, open, header, tensors ...
        job = make_job(forker, tmp_path / f"call-{number}", steps=2)
        running = dying(job, rank=1, number=number).start(2)
        assert running.wait_for(1) == -9
        assert saved_steps(job.checkpoints()) == []
        running.kill()
        job.run(2, attempt=2)
        assert saved_steps(job.checkpoints()) == [2]


def dying(job: Job, rank: int, number: int, **variables: str) -> Job:
    return replace(job, variables={"DIE_RANK": str(rank), "DIE_AT_CALL": str(number), **variables})


def assert_good(job: Job) -> None:
    """What has a final name is good, to the last byte: the next start never needs to fall back."""
    steps = saved_steps(job.checkpoints())
    assert steps
    for step in steps:
        read(job.checkpoints(), step)
