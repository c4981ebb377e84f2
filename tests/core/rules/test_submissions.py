"""A job whose submission was cut off makes no pod, and goes after ten minutes; that of a whole one is told."""

from datetime import timedelta

import pytest
from trainmaster.wire import names

from tests.builders import NOON, a_job
from tests.core.stage import Stage

CODE = {"sha256": "a" * 64, "configMaps": ["digits-code-0"], "commit": "c" * 40, "dirty": True}
TRAINING = {"command": ["python", "train.py"], "code": {"bundle": CODE}}
MARKED = {"annotations": {names.SUBMISSION: "1f6f0c"}, "creationTimestamp": NOON.isoformat()}


def cut_off(**spec: object) -> Stage:
    given = {"training": TRAINING, "suspend": True, "ttlSecondsAfterFinished": 0, **spec}
    return Stage(a_job().where(**given).with_metadata(**MARKED))


def test_a_submission_that_was_cut_off_goes_after_ten_minutes() -> None:
    stage = cut_off().wait(599)
    assert (stage.status.phase, stage.replicas) == ("Pending", {})
    assert stage.status.message == "Waiting for its code, which trainmaster submit brings."
    assert "Suspended" not in {one.type for one in stage.status.conditions}, "nobody has suspended it"
    assert stage.wake_at == NOON + timedelta(seconds=600)
    stage.wait(1)
    assert (stage.status.phase, stage.status.reason, stage.created) == ("Failed", "SubmissionIncomplete", [])
    assert "Submit the job again." in (stage.status.message or "")
    assert stage.job_deleted


def test_one_that_was_completed_in_time_stays() -> None:
    stage = cut_off().wait(300)
    whole = a_job().where(training=TRAINING).with_metadata(creationTimestamp=NOON.isoformat()).build()
    stage.job = whole.model_copy(update={"status": stage.status})
    stage.wait(900)
    assert stage.status.phase == "Pending"
    assert not stage.job_deleted
    assert stage.status.code
    assert stage.status.code.to_dict() == {"sha256": "a" * 64, "commit": "c" * 40, "dirty": True}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            {"git": {"repository": "https://host/a.git", "commit": "c" * 40}},
            {"commit": "c" * 40, "dirty": False, "source": "https://host/a.git"},
        ),
        (
            {"url": {"address": "https://host/a.tar?X-Signature=s3cret", "sha256": "a" * 64}},
            {"sha256": "a" * 64, "source": "https://host/a.tar"},
        ),
        (
            {"image": {"reference": f"host/code@sha256:{'b' * 64}"}},
            {"sha256": "b" * 64, "source": f"host/code@sha256:{'b' * 64}"},
        ),
    ],
)
def test_a_status_says_by_what_code_is_known(code: dict[str, object], told: dict[str, object]) -> None:
    stage = Stage(a_job().where(training={**TRAINING, "code": code})).wait(1)
    assert stage.status.code
    assert stage.status.code.to_dict() == told


def test_a_mark_on_a_job_that_runs_ends_nothing() -> None:
    stage = cut_off(suspend=False).wait(900)
    assert stage.status.phase == "Pending"
    assert stage.created
