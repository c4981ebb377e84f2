"""The administrator's storage: who gets it, that it is written before anything is made of it, and that it stays."""

from __future__ import annotations

import json

import pytest
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob
from trainmaster.api.policies import ClaimReference, ObjectStoreSpec, Storage
from trainmaster.core.report.story import story
from trainmaster.wire import names

from tests.builders import JobBuilder, a_job
from tests.core.stage import Stage

CLAIM = Storage(persistent_volume_claim=ClaimReference(claim_name="models"))
BUCKET = Storage(object_store=ObjectStoreSpec(url="s3://models/jobs"))
OWN = {"storage": {"persistentVolumeClaim": {"claimName": "mine"}}}
MOUNT = {"volumes": [{"name": "own", "emptyDir": {}}], "volumeMounts": [{"name": "own", "mountPath": "/checkpoints/"}]}


def given(job: JobBuilder, default: Storage | None) -> Stage:
    """The job's first looks, where the administrator gives this."""
    stage = Stage(job)
    stage.private_checkpoints = job.build().spec.checkpoint.storage is None
    stage.default_storage = default
    return stage.settle()


def test_it_is_written_before_the_first_pod_is_made_and_said() -> None:
    stage = Stage(a_job())
    stage.private_checkpoints, stage.default_storage = True, CLAIM
    first = stage.turn()
    assert (stage.status.storage, first.actions, first.again) == (CLAIM, (), True)
    assert stage.told("CheckpointStorage") == ("True", "Default")
    said = stage.condition("CheckpointStorage")
    assert said
    assert said.message.endswith("the administrator's default keeps what is saved: the claim models.")
    assert said.message in story(stage.status), "as explain and status tell it"
    assert [event.reason for event in stage.settle().events] == [], "nothing is lost, so nobody is warned"


def test_another_default_later_changes_nothing() -> None:
    stage = given(a_job(), CLAIM)
    stage.default_storage = BUCKET
    assert stage.call_in().obey(step=5).wait(20).status.storage == CLAIM
    begun_without = given(a_job(), None)
    begun_without.default_storage = BUCKET
    assert begun_without.call_in().obey(step=5).wait(20).status.storage is None


@pytest.mark.parametrize(
    ("job", "default", "expected"),
    [
        (a_job(), None, None),
        (a_job(), BUCKET, BUCKET),
        (a_job().where(checkpoint=OWN), CLAIM, None),
        (a_job().with_workers(2, **MOUNT), CLAIM, None),
        (a_job().with_workers(2, **MOUNT), BUCKET, BUCKET),
        (a_job().where(suspend=True), CLAIM, CLAIM),
    ],
)
def test_who_gets_it(job: JobBuilder, default: Storage | None, expected: Storage | None) -> None:
    """A job's own setting wins, and so does a volume of its own at the place of a claim."""
    assert given(job, default).status.storage == expected


def test_a_job_is_read_with_it_until_it_names_its_own() -> None:
    told = BUCKET.to_dict()
    assert a_job().at("Running", storage=told).build().spec.checkpoint.storage == BUCKET
    own = a_job().where(checkpoint=OWN).at("Running", storage=told).build().spec.checkpoint.storage
    assert own is not None
    assert own.persistent_volume_claim is not None
    assert own.persistent_volume_claim.claim_name == "mine"
    job = a_job().named("copy").at("Running", storage=told)
    copied = load(
        json.dumps(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "metadata": {"name": "copy"},
                "spec": job.spec,
                "status": job.status,
            }
        )
    )
    assert isinstance(copied, TrainingJob)
    assert copied.spec.checkpoint.storage is None, "a job made of another's document is another job"
    broken = a_job().at("Running", storage={"objectStore": 7}).build()
    assert broken.spec.checkpoint.storage is None, "an edited status stops nothing"


def test_the_end_does_not_say_that_the_model_was_lost() -> None:
    stage = given(a_job(), CLAIM)
    stage.call_in().obey(step=5).wait(20)
    stage.finish()
    assert stage.status.message == "The worker finished."
