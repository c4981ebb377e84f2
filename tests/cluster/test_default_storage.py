"""values: defaultStorage. Jobs that name no storage get the administrator's, by a real operator and API server."""

import json

import pytest
from trainmaster.cli.operator import pod_settings
from trainmaster.cluster.controller import Address

from .lab import Lab

CLAIM = {"persistentVolumeClaim": {"claimName": "models"}}


@pytest.fixture
def administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has installed the operator with a default."""
    monkeypatch.setenv("TRAINMASTER_DEFAULT_STORAGE", json.dumps(CLAIM))


@pytest.mark.usefixtures("administrator")
def test_a_job_without_a_storage_gets_the_administrators(bound: Lab) -> None:
    bound.submit("plain")
    own = {"persistentVolumeClaim": {"claimName": "mine"}}
    bound.submit("own", checkpoint={"storage": own})
    pods = bound.await_pods("plain-worker-0-0", "own-worker-0-0")
    claims = [volume for pod in pods for volume in pod["spec"]["volumes"] if "persistentVolumeClaim" in volume]
    assert [volume["persistentVolumeClaim"]["claimName"] for volume in claims] == ["models", "mine"]
    job = bound.job("plain")
    uid = job["metadata"]["uid"][:8]
    variables = {one["name"]: one.get("value") for one in pods[0]["spec"]["containers"][0]["env"]}
    assert variables["TRAINMASTER_CHECKPOINTS"] == f"/checkpoints/plain-{uid}"
    assert job["status"]["storage"] == CLAIM
    (said,) = [one for one in job["status"]["conditions"] if one["type"] == "CheckpointStorage"]
    assert (said["status"], said["reason"]) == ("True", "Default")
    assert "storage" not in bound.job("own").get("status", {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ('{"path": "/shared"}', "jobs would share one path"),
        ('{"objectStore": {"url": "bucket"}}', "url is not the URL of a bucket"),
        ('{"objectStore": {"url": "s3://b"}, "persistentVolumeClaim": {"claimName": "c"}}', "storage is one place"),
        ('{"claim": "models"}', "spec.checkpoint.storage"),
        ('{"persistentVolumeClaim": {"claimName": "Two Words"}}', "spec.checkpoint.storage"),
    ],
)
def test_a_wrong_default_is_refused_at_the_start(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="TRAINMASTER_DEFAULT_STORAGE") as refused:
        pod_settings({"TRAINMASTER_DEFAULT_STORAGE": text}, Address("127.0.0.1", 8080))
    assert said in str(refused.value)
