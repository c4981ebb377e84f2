"""Parameter servers and workers in real pods: what is deleted or killed comes back alone, the others train on."""

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import ENDLESS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    return Job(cluster, namespace)


def test_a_worker_and_a_server_come_back_alone(job: Job) -> None:
    servers = {"replicas": 2, "cpu": "50m", "memory": "1Gi"}
    job.submit(strategy={"type": "ParameterServer"}, training=ENDLESS, parameterServers=servers)
    job.wait("Running")
    status = job.wait_for_step(20)
    assert (status["replicas"]["summary"], status["parameterServers"]["summary"]) == ("2/2", "2/2")
    resources = job.pods()["digits-parameterserver-0-0"]["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"memory": "1Gi"}
    before = job.uids()
    job.kubectl("delete", "pod", "digits-worker-1-0", "--wait=false")
    job.wait_for("jsonpath={.status.incarnations.worker-1}=1")
    job.kill_rank("digits-parameterserver-1-0")
    job.wait_for("jsonpath={.status.restartCount}=2")
    status = job.goes_on()
    assert status["attempt"] == 1, "nobody else was disturbed"
    assert [entry["class"] for entry in status["restarts"]] == ["ReplicaDeleted", "Signal"]
    kept = {name: uid for name, uid in job.uids().items() if name in before}
    assert kept.items() <= before.items()
    assert len(kept) == 3
