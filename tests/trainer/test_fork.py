"""A job that begins with another one's checkpoint (`resumeFrom`): what becomes of that job then is all the same."""

from dataclasses import replace
from pathlib import Path

import pytest
from trainmaster.wire import names

from tests.trainer.ranks import Job, NewJob, Options


def steps_of(job: Job) -> list[int]:
    return [line["step"] for line in job.lines() if "loss" in line]


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


def test_what_another_job_gave_up_in_that_folder_says_nothing(new_job: NewJob, tmp_path: Path) -> None:
    """The lineage is that of the job whose folder it is; checkpoints of others may have come there."""
    first = new_job("first").but(steps=4).run(1)
    lineage = first.checkpoints() / "lineage.json"
    lineage.write_text('{"job": "another", "resumed": {"1": 0, "2": 2}}')
    assert steps_of(new_job("fork", resume_from=str(first.checkpoints())).run(1)) == [5, 6]
