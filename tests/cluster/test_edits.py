"""Edits of jobs on a real API server: a spec that is corrected in time helps, and one of an ended job is refused."""

import pytest
from trainmaster.wire import names

from .apiserver import RefusedRequestError
from .lab import MERGE_PATCH, Lab
from .test_life import finish


def a_limit_range(lab: Lab) -> None:
    """As the administrator of a namespace sets it for whoever names no limit."""
    limits = [{"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"}}]
    named = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual"}, "spec": {"limits": limits}}
    lab.server.call("POST", f"{lab.core}/limitranges", named)


def test_what_a_namespace_adds_is_waited_for_and_an_edit_helps(lab: Lab) -> None:
    a_limit_range(lab)
    lab.submit(workers={"cpu": "500m", "image": "team/trainer:1"})
    told = lab.await_event("NamespaceDefaults")
    assert "less than or equal to cpu limit of 200m" in told["note"]
    assert "spec.workers.template: {spec: {containers: [{name: trainer, resources: {limits: {cpu:" in told["note"]
    assert lab.job()["status"]["phase"] == "Pending"
    limits = {"name": "trainer", "resources": {"limits": {"cpu": "1"}}}
    lab.patch_job({"spec": {"workers": {"template": {"spec": {"containers": [limits]}}}}})
    (pod,) = lab.await_pods("digits-worker-0-0")
    (installer,) = pod["spec"]["initContainers"]
    assert installer["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}


def test_a_quota_on_limits_names_what_to_set(lab: Lab) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    lab.server.call("POST", f"{lab.core}/resourcequotas", {**quota, "spec": {"hard": {"limits.cpu": "4"}}})
    lab.server.call(
        "PATCH", f"{lab.core}/resourcequotas/small/status", {"status": {"hard": {"limits.cpu": "4"}}}, MERGE_PATCH
    )
    lab.submit(workers={"image": "team/trainer:1"})
    assert "spec.workers.template" in lab.await_event("AmountsMissing")["note"]


def test_a_field_of_a_template_that_no_pod_has_is_named_and_not_dropped(lab: Lab) -> None:
    """A misspelt nodeSelector would have placed the pods anywhere."""
    lab.submit(workers={"template": {"spec": {"nodeSelectr": {"zone": "a"}}}})
    status = lab.await_phase("Failed")["status"]
    assert status["reason"] == "Invalid"
    assert 'unknown field "spec.nodeSelectr"' in status["message"]


def waiting_for_an_image(lab: Lab, pod: str) -> None:
    """As a kubelet tells it."""
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}
    named = {"name": "trainer", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    lab.patch_pod(pod, {"containerStatuses": [named]})


def test_an_image_that_is_corrected_in_time_is_the_next_pods_and_an_ended_job_takes_no_edit(lab: Lab) -> None:
    lab.submit(workers={"image": "team/trainer:typo"})
    lab.await_pods("digits-worker-0-0")
    waiting_for_an_image(lab, "digits-worker-0-0")
    lab.await_event("ImagePullBackOff")
    lab.patch_job({"spec": {"workers": {"image": "team/trainer:1", "cpu": "100m"}}})
    lab.await_owned("digits-worker-0-1")
    pod = lab.pod("digits-worker-0-1")
    assert pod["spec"]["containers"][0]["image"] == "team/trainer:1"
    assert set(pod["metadata"]["annotations"][names.ANNOTATION_REVISION].split("=")) >= {"strategy"}
    agents = lab.start_training("digits-worker-0-1")
    lab.await_phase("Running")
    lab.patch_job({"spec": {"workers": {"image": "team/trainer:2"}}})
    job = lab.await_job(lambda job: "SpecChanged" in str(job["status"].get("conditions")))
    (told,) = [one for one in job["status"]["conditions"] if one["type"] == "SpecChanged"]
    assert (told["status"], told["reason"]) == ("True", "NextAttempt")
    assert told["message"].startswith("spec.workers.image changed after attempt 1 had begun.")
    assert not job["status"].get("restarts")
    finish(lab, agents)
    with pytest.raises(RefusedRequestError, match="the job is over, and takes no change") as refused:
        lab.patch_job({"spec": {"training": {"steps": 999}}})
    assert "suspend to true" not in str(refused.value)
