"""One job lives through what goes away: the operator, ranks, the API server, a node, pods. Training goes on.

The tests share that job, one after the other in their order here, as a start of pods takes longer than a fault of
most kinds. Each looks at what its own fault has added to the ledger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from tests.onebox.conftest import new_namespace
from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import ENDLESS, Document

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SYSTEM = "--namespace=trainmaster-system"
CLAIM: Document = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "models"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}
SPREAD: Document = {
    "labelSelector": {"matchLabels": {"trainmaster.dev/job": "digits"}},
    "topologyKey": "kubernetes.io/hostname",
}
ON_TWO_NODES: Document = {
    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": SPREAD}]}
}


@pytest.fixture(scope="module")
def lasting(cluster: Flavour) -> Iterator[Job]:
    """The job, just submitted: it has no end, saves on a claim, and prefers a node for each worker."""
    with new_namespace(cluster) as namespace:
        job = Job(cluster, namespace)
        job.create(CLAIM)
        job.submit(
            training=ENDLESS,
            workers={"replicas": 2, "affinity": ON_TWO_NODES},
            checkpoint={"everySteps": 50, "storage": {"persistentVolumeClaim": {"claimName": "models"}}},
            failurePolicy={"maxRestarts": 100},
        )
        yield job


@pytest.fixture
def job(lasting: Job) -> Job:
    """It, while it trains."""
    if lasting.status().get("phase") == "Failed":
        pytest.fail("a test before this one has ended the job that they share")
    lasting.wait_for_step(20)
    lasting.wait("Running")
    return lasting


def _kill_operator(cluster: Flavour) -> None:
    """At once, without a word."""
    cluster.kubectl("delete", "pods", "--all", SYSTEM, "--grace-period=0", "--force")


def _leader(cluster: Flavour) -> str:
    """The pod that holds the lease."""
    path = "jsonpath={.spec.holderIdentity}"
    return cluster.kubectl("get", "lease/trainmaster", SYSTEM, f"--output={path}").partition("_")[0]


def _after(job: Job, before: Document) -> tuple[Document, Document]:
    """Wait for an attempt after that of `before`; return the status, and the one line that its ledger has more."""
    end = time.monotonic() + 400
    while job.status()["attempt"] <= before["attempt"]:
        assert time.monotonic() < end, json.dumps(job.status(), indent=1)
        time.sleep(0.5)
    status = job.goes_on()
    (line,) = status["restarts"][len(before.get("restarts", [])) :]
    return status, line


def _after_one_restart(job: Job, before: Document) -> Document:
    """Wait likewise, and return the line: one attempt began, and one restart is counted."""
    status, line = _after(job, before)
    assert status["attempt"] == before["attempt"] + 1
    assert status["restartCount"] == before["restartCount"] + 1
    return line


def test_an_operator_killed_again_and_again(lasting: Job, cluster: Flavour) -> None:
    """The first of the tests of this job: its pods are made meanwhile, and its ranks start."""
    for _ in range(4):
        _kill_operator(cluster)
        time.sleep(3)  # at moments that nobody chose
    status = lasting.goes_on()
    assert (status["attempt"], status["restartCount"]) == (1, 0)


def test_the_leader_killed_under_a_training_job(
    job: Job, cluster: Flavour, record_property: Callable[[str, object], None]
) -> None:
    """At once and without a word, while a rank dies: the standby judges that death, once."""
    cluster.kubectl("rollout", "status", "deployment/trainmaster", SYSTEM, "--timeout=200s")
    uids, status = job.uids(), job.status()
    before = _leader(cluster)
    cluster.kubectl("delete", "pod", before, SYSTEM, "--grace-period=0", "--force", "--wait=false")
    began = time.monotonic()
    job.kill_rank(job.pod_of(0))
    job.wait_for(f"jsonpath={{.status.attempt}}={status['attempt'] + 1}")
    record_property("seconds_to_the_next_attempt", round(time.monotonic() - began, 2))
    assert _leader(cluster) not in ("", before)
    _after_one_restart(job, status)
    assert job.uids() == uids


def test_an_operator_killed_while_ranks_die(job: Job, cluster: Flavour) -> None:
    uids, before = job.uids(), job.status()
    _kill_operator(cluster)
    job.kill_rank(job.pod_of(0))
    cluster.kubectl("rollout", "status", "deployment/trainmaster", SYSTEM, "--timeout=200s")
    _after_one_restart(job, before)
    assert job.uids() == uids


def test_a_rank_that_is_killed_costs_no_pod(job: Job) -> None:
    uids, before = job.uids(), job.status()
    job.kill_rank(job.pod_of(1))
    line = _after_one_restart(job, before)
    assert (line["class"], line["exit"]) == ("Signal", "SIGKILL")
    assert line["secondsLost"] > 0
    assert job.uids() == uids


@pytest.mark.slow
def test_an_api_server_that_is_away_for_a_minute(job: Job, breakable: Flavour) -> None:
    status = job.status()
    before = status["progress"]["step"]
    breakable.stop("kube-apiserver")
    time.sleep(60)
    breakable.start("kube-apiserver")
    deadline = time.monotonic() + 400
    # The first status may tell what agents had said before the outage, 10 s of steps at most after the one before it.
    while (after := job.status()["progress"]["step"]) <= before + 100:
        assert time.monotonic() < deadline, "progress is told again soon"
        time.sleep(0.5)
    assert after > before + 200, "training went on all the time"
    now, same = job.goes_on(), ("attempt", "restartCount", "incarnations")
    assert {key: now.get(key) for key in same} == {key: status.get(key) for key in same}


@pytest.mark.slow
def test_a_node_that_is_lost(job: Job, breakable: Flavour) -> None:
    """With what a job has by itself: its pods are replaced on the other node long before Kubernetes gives them up."""
    before = job.status()
    assert sorted(pod["spec"]["nodeName"] for pod in job.pods().values()) == ["node-1", "node-2"]
    breakable.node("node-2").kill()
    # The survivor's error may be seen before the node is given up, and cost an attempt that nobody can begin.
    _, line = _after(job, before)
    assert (line["class"], line["evidence"].split(":")[0]) == ("Disruption", "NodeSilent"), json.dumps(line)
    replaced = {pod["spec"]["nodeName"] for pod in job.pods().values() if "deletionTimestamp" not in pod["metadata"]}
    assert replaced == {"node-1"}


def test_a_deleted_pod_is_replaced(job: Job) -> None:
    before = job.status()
    job.kubectl("delete", "pod", job.pod_of(1), "--wait=false")
    status, line = _after(job, before)
    incarnations = before.get("incarnations", {})
    assert status["incarnations"] == {**incarnations, "worker-1": incarnations.get("worker-1", 0) + 1}
    assert line["class"] == "ReplicaDeleted"


def test_all_pods_lost_and_the_claim_has_the_checkpoints(job: Job) -> None:
    before = job.status()
    job.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
    line = _after_one_restart(job, before)
    assert line["stepsLost"] < line["step"], "it went on from a checkpoint"
    job.saves()
