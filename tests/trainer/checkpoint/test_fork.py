"""A job that begins with another one's checkpoint (`resumeFrom`): what becomes of that job then is all the same."""

import shutil
import time
from dataclasses import replace

import pytest
from trainmaster.cli.audit import audit
from trainmaster.wire import names

from tests.trainer.crew import Crew
from tests.trainer.ranks import PATIENCE, Job, NewJob, Options, Running

SLOW: Options = {"seconds": 0.02}
SLOWER: Options = {"seconds": 0.2}  # so that the kill comes long before the end
CREWS = {"Gossip": (2, 0), "ParameterServer": (1, 1)}  # workers and servers


def steps_of(job: Job) -> list[int]:
    return [line["step"] for line in job.lines() if "loss" in line]


def start(job: Job, attempt: int) -> Running | Crew:
    if job.plan.strategy in CREWS:
        return Crew(job, *CREWS[job.plan.strategy], attempt).start()
    return job.start(2, attempt)


def end(running: Running | Crew) -> None:
    if isinstance(running, Crew):
        running.finish()
    else:
        assert running.wait() == [0, 0], running.output()


def reach(job: Job, running: Running | Crew) -> None:
    """Return when ten steps are done and the step that it began with is saved, which is done beside the steps."""
    running.reach(10)
    deadline = time.monotonic() + PATIENCE
    while not (job.checkpoints() / "step-00000004" / "manifest.json").exists():
        assert time.monotonic() < deadline, running.output()
        time.sleep(0.002)


def kill(running: Running | Crew) -> None:
    if isinstance(running, Crew):
        running.close()
    else:
        running.kill()


def outcome(job: Job, attempt: int = 1) -> str:
    """What its ranks say."""
    running = start(job, attempt)
    end(running)
    return running.output()


@pytest.fixture
def first(new_job: NewJob) -> Job:
    """It has done four steps."""
    return new_job("first", checkpoint_keep=1).but(steps=4).run(1)


@pytest.mark.parametrize("is_gone", [False, True], ids=["it goes on", "it is gone"])
@pytest.mark.parametrize("strategy", ["AllReduce", "Gossip", "ParameterServer"])
def test_a_restart_goes_on_from_the_same_step(new_job: NewJob, first: Job, strategy: str, is_gone: bool) -> None:
    plan: Options = {"steps": 40, "checkpoint_every": 1000, "arguments": SLOW, "strategy": strategy}
    job = new_job("fork", resume_from=str(first.checkpoints()), **plan)
    running = start(job.but(arguments=SLOWER), 1)
    reach(job, running)
    kill(running)
    assert job.manifest(4)["attempt"] == 1, "its own, long before the first that is due"
    if is_gone:
        shutil.rmtree(first.folder)
    else:
        first.but(steps=30).run(1, attempt=2)
    assert "Resuming from step 4 of attempt 1" in outcome(job, attempt=2)
    assert steps_of(job) == list(range(5, 41))
    assert audit(str(job.checkpoints())) == 0


def test_a_restart_that_finds_none_of_its_own_begins_anew(new_job: NewJob, first: Job) -> None:
    """Whatever was done after the first job's older checkpoint leaves no trace."""
    job = new_job("fork", resume_from=str(first.checkpoints()), steps=40, checkpoint_every=1000, arguments=SLOW)
    running = start(job.but(arguments=SLOWER), 1)
    reach(job, running)
    kill(running)
    shutil.rmtree(job.checkpoints() / "step-00000004")
    first.but(steps=30).run(1, attempt=2)
    job.run(2, attempt=2)
    assert steps_of(job) == list(range(31, 41))
    assert audit(str(job.checkpoints())) == 0


def test_a_run_in_the_folder_of_an_older_one_keeps_its_lines(new_job: NewJob) -> None:
    """Its checkpoints are that run's at first, but lie in its own folder: that is no other job's."""
    job = new_job("job", checkpoint_every=1000, arguments=SLOW).but(steps=4).run(2)
    later = replace(job.but(steps=40), variables={names.ENV_JOB_UID: "another"})
    running = start(later, 1)
    running.reach(10)
    kill(running)
    later.run(2, attempt=2)
    assert steps_of(later) == list(range(1, 41))


def test_memory_that_is_newer_brings_the_lines_that_belong_to_it(new_job: NewJob, first: Job) -> None:
    plan: Options = {"steps": 40, "checkpoint_every": 1000, "arguments": SLOW, "memory_every": 1}
    job = replace(new_job("fork", resume_from=str(first.checkpoints()), **plan), memory=True)
    running = start(job.but(arguments=SLOWER), 1)
    reach(job, running)
    kill(running)
    shutil.rmtree(job.checkpoints() / "step-00000004")
    shutil.rmtree(first.folder)
    assert "kept in memory" in outcome(job, attempt=2)
    assert steps_of(job) == list(range(5, 41))
    saved = sorted(path.name for path in job.checkpoints().glob("step-*"))
    assert len(saved) == 2, "where it went on, and the last"
    assert audit(str(job.checkpoints())) == 0


@pytest.mark.parametrize("strategy", ["AllReduce", "Gossip", "ParameterServer"])
def test_with_nothing_left_to_train_it_has_the_model_nevertheless(new_job: NewJob, first: Job, strategy: str) -> None:
    job = new_job("fork", resume_from=str(first.checkpoints()), steps=3, strategy=strategy)
    outcome(job)
    assert job.manifest(4)["model_sha256"] == first.manifest(4)["model_sha256"]
    assert job.result()["step"] == 4
    assert audit(str(job.checkpoints())) == 0


@pytest.mark.parametrize("beside", [False, True], ids=["path", "job"])
def test_a_branch_that_its_job_gave_up_is_not_taken(new_job: NewJob, beside: bool) -> None:
    """Attempt 2 doubts step 4, goes on from 2 and has come to 3."""
    first = new_job("first").but(steps=4).run(1)
    replace(first.but(steps=3), variables={names.ENV_RESUME_BEFORE: "4"}).run(1, attempt=2)
    assert first.manifest(4)["attempt"] == 1, "it is still there"
    source: Options = {"resume_job": "first"} if beside else {"resume_from": str(first.checkpoints())}
    assert steps_of(new_job("fork", **source).run(2)) == [4, 5, 6]
    running = new_job("asks", resume_step=4, **source).start(2)
    assert running.wait() == [78, 78]
    assert "attempt 1 came to it on a branch that was given up. Name another step." in running.output()


def test_what_another_job_gave_up_in_that_folder_says_nothing(new_job: NewJob) -> None:
    """The lineage is that of the job whose folder it is; checkpoints of others may have come there."""
    first = new_job("first").but(steps=4).run(1)
    lineage = first.checkpoints() / "lineage.json"
    lineage.write_text('{"job": "another", "resumed": {"1": 0, "2": 2}}')
    assert steps_of(new_job("fork", resume_from=str(first.checkpoints())).run(1)) == [5, 6]
