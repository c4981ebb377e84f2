"""Where the code of a job lies in its pods."""

from typing import Any

from trainmaster.cluster import manifests
from trainmaster.cluster.manifests import PodSettings
from trainmaster.wire import codec, names
from trainmaster.wire.sources import ENV_SECRET, PackageSource
from trainmaster.wire.training import TrainingPlan

from tests.builders import TASK, JobBuilder, a_job

SETTINGS = PodSettings("http://10.96.0.7:8080", "trainer:1")
PARTS = ["digits-code-0", "digits-code-1"]
CODE = {"bundle": {"sha256": "a" * 64, "configMaps": PARTS}}


def the_pod(job: JobBuilder, role: str = names.WORKER) -> dict[str, Any]:
    return dict(manifests.pod(job.build(), role, 0, 0, SETTINGS)["spec"])


def the_variables(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in pod["containers"][0]["env"]}


def test_it_lies_in_each_pod_where_no_user_can_mount() -> None:
    job = a_job().where(strategy={"type": "ParameterServer"}, training={**TASK, "code": CODE})
    for role in (names.WORKER, names.PARAMETER_SERVER):
        pod = the_pod(job, role)
        (volume,) = [one for one in pod["volumes"] if one["name"] == "trainmaster-bundle"]
        assert [source["configMap"]["name"] for source in volume["projected"]["sources"]] == PARTS
        mount = {"name": "trainmaster-bundle", "mountPath": "/run/trainmaster/bundle", "readOnly": True}
        assert mount in pod["containers"][0]["volumeMounts"]
        assert the_variables(pod)[names.ENV_CODE] == "/run/trainmaster/bundle"
        assert codec.decode(TrainingPlan, the_variables(pod)[names.ENV_TRAINING]).code == "a" * 64


def test_a_job_without_code_has_nothing_of_it() -> None:
    pod = the_pod(a_job())
    assert names.ENV_CODE not in the_variables(pod)
    assert "trainmaster-bundle" not in [one["name"] for one in pod["volumes"]]


def test_a_secret_of_the_source_comes_as_variables_that_ranks_do_not_see() -> None:
    source = {"repository": "https://host/a.git", "commit": "a" * 40, "secretName": "token"}
    pod = the_pod(a_job().where(training={**TASK, "code": {"git": source}}))
    variables = {one["name"]: one for one in pod["containers"][0]["env"]}
    assert variables[f"{ENV_SECRET}password"]["valueFrom"]["secretKeyRef"] == {
        "name": "token",
        "key": "password",
        "optional": True,
    }
    assert "trainmaster-bundle" not in [one["name"] for one in pod["volumes"]]
    assert variables[names.ENV_CODE]["value"]
    assert "token" not in variables[names.ENV_TRAINING]["value"]


def test_an_image_is_mounted_where_a_bundle_would_be() -> None:
    reference = f"registry/code@sha256:{'0' * 64}"
    pod = the_pod(a_job().where(training={**TASK, "code": {"image": {"reference": reference}}}))
    (volume,) = [one for one in pod["volumes"] if one["name"] == "trainmaster-bundle"]
    assert volume["image"] == {"reference": reference, "pullPolicy": "IfNotPresent"}
    assert {"name": "trainmaster-bundle", "mountPath": "/run/trainmaster/bundle", "readOnly": True} in pod[
        "containers"
    ][0]["volumeMounts"]
    assert codec.decode(TrainingPlan, the_variables(pod)[names.ENV_TRAINING]).code_image


def test_wheels_of_a_claim_are_mounted_read_only() -> None:
    wheels = {"persistentVolumeClaim": {"claimName": "wheels"}}
    pod = the_pod(a_job().where(training={**TASK, "packages": {"names": ["timm==1.0.19"], "wheels": wheels}}))
    (volume,) = [one for one in pod["volumes"] if one["name"] == "trainmaster-wheels"]
    assert volume["persistentVolumeClaim"] == {"claimName": "wheels", "readOnly": True}
    packages = codec.decode(TrainingPlan, the_variables(pod)[names.ENV_TRAINING]).packages
    assert packages == PackageSource(("timm==1.0.19",), None, "/run/trainmaster/wheels")
