"""A spare takes the place of a worker whose pod is deleted or whose node is lost, while no new pod finds a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import ENDLESS, Document
from tools.onebox import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.slow]

STAYS, GOES = "node-1", "node-2"


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    return Job(cluster, namespace)


@pytest.fixture
def schedulable(onebox: Cluster, breakable: Flavour) -> Iterator[Cluster]:
    """The cluster, whose nodes take pods again afterwards."""
    assert breakable is onebox
    yield onebox
    onebox.kubectl("uncordon", STAYS, GOES)


def after(job: Job, attempt: int, place: str, worker: int) -> Document:
    """Training has gone on, in this attempt or a later one, with this worker in the place of another."""
    job.wait_for(f"jsonpath={{.status.substitutes.{place}}}={worker}")
    status = job.wait("Running")
    assert status["attempt"] >= attempt, status
    assert f"takes the place of {place}" in status["restarts"][-1]["why"], status["restarts"]
    return status


def test_training_goes_on_though_no_new_pod_finds_a_place(job: Job, schedulable: Cluster) -> None:
    schedulable.kubectl("cordon", STAYS)
    job.submit(training=ENDLESS, scheduling={"spares": 1}, failurePolicy={"nodeLostSeconds": 1})
    job.wait("Running")
    job.wait_for("condition=SparesReady")
    schedulable.kubectl("cordon", GOES)
    job.kubectl("delete", "pod", "digits-worker-1-0", "--wait=false")
    status = after(job, 2, "worker-1", 2)
    assert (status["attempt"], status["restarts"][0]["class"]) == (2, "ReplicaDeleted")
    assert job.pods()["digits-worker-1-1"]["status"]["phase"] == "Pending", "its next pod has no node"

    schedulable.kubectl("uncordon", STAYS)
    job.wait_for("condition=SparesReady")  # the next pod is the spare, on the other node
    job.kubectl("delete", "pod", "digits-worker-0-0", "--wait=false")
    after(job, 3, "worker-0", 1)

    job.wait_for("condition=SparesReady")
    schedulable.kubectl("cordon", STAYS)
    schedulable.node(GOES).kill()  # worker-2 is there, and its pod will stay in Terminating
    # The survivor's error may be seen before the node is given up, and cost an attempt that nobody can begin.
    job.wait_for("jsonpath={.status.substitutes.worker-1}=0")
    status = job.wait("Running")
    assert status["substitutes"] == {"worker-0": 1, "worker-1": 0}
    assert status["restarts"][-1]["class"] == "Disruption"
    assert "Spare worker-0 takes the place of worker-2." in status["restarts"][-1]["why"]
    assert "deletionTimestamp" in job.pods()["digits-worker-2-0"]["metadata"]
