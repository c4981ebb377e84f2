"""What keeps a job from starting is said, with its cure, and overcome when somebody helps."""

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job, without_torch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    return Job(cluster, namespace)


def _wait_for_reason(job: Job, reason: str) -> str:
    path = '{.status.conditions[?(@.type=="ReplicasReady")].reason}'
    job.wait_for(f"jsonpath={path}={reason}")
    return str(job.condition("ReplicasReady")["message"])


def test_an_image_that_is_not_there(job: Job) -> None:
    job.submit(workers={"replicas": 1, "image": "127.0.0.1:1/no/such:image"})
    message = _wait_for_reason(job, "ImagePullBackOff")
    assert "spec.workers.image" in message
    job.wait_for_event("ImagePullBackOff")


def test_an_image_that_is_not_there_ends_the_job_in_time(job: Job) -> None:
    workers = {"replicas": 1, "image": "127.0.0.1:1/no/such:image"}
    job.submit(workers=workers, failurePolicy={"startSeconds": 5})
    status = job.wait("Failed")
    assert status["reason"] == "ImagePullBackOff"


def test_a_claim_that_comes_late(job: Job) -> None:
    storage = {"persistentVolumeClaim": {"claimName": "late"}}
    workers = {"replicas": 2, **without_torch(job.cluster)}
    job.submit(training={"command": ["python3", "-c", ""]}, workers=workers, checkpoint={"storage": storage})
    message = _wait_for_reason(job, "VolumeMissing")
    assert "late" in message
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    job.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "late"}, "spec": spec})
    assert job.wait("Succeeded")["restartCount"] == 0


def test_a_config_map_that_is_missing(job: Job) -> None:
    job.submit(workers={"replicas": 1, "envFrom": [{"configMapRef": {"name": "nowhere"}}]})
    message = _wait_for_reason(job, "CreateContainerConfigError")
    assert "nowhere" in message


def test_a_cluster_that_is_full_is_waited_for(job: Job) -> None:
    job.submit(workers={"replicas": 1, "gpus": 1}, failurePolicy={"startSeconds": 5})
    message = _wait_for_reason(job, "Unschedulable")
    assert "nvidia.com/gpu" in message
    assert job.status()["phase"] == "Pending"


def test_what_is_not_supported_yet_says_so(job: Job) -> None:
    job.submit(scheduling={"gang": "Kueue", "queue": "team-a"})
    status = job.wait("Failed")
    assert status["reason"] == "NotYetSupported"
    assert job.pods() == {}


def test_a_service_account_that_is_not_ours_to_use(job: Job) -> None:
    """The fence's own words reach the job's author."""
    job.submit(workers={"replicas": 1, "serviceAccountName": "powerful"})
    message = _wait_for_reason(job, "Forbidden")
    assert "powerful" in message or "service account" in message
