"""The operator and the API server go away and come back, and training does not notice."""

import json
import time
from collections.abc import Callable

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import ENDLESS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SYSTEM = "--namespace=trainmaster-system"


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    return Job(cluster, namespace)


def _kill_operator(cluster: Flavour) -> None:
    """At once, without a word."""
    cluster.kubectl("delete", "pods", "--all", SYSTEM, "--grace-period=0", "--force")


def test_an_operator_killed_while_ranks_die(job: Job, cluster: Flavour) -> None:
    job.submit(training=ENDLESS)
    job.wait_for_step(20)
    uids = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    _kill_operator(cluster)
    job.kill_rank("digits-worker-0-0")
    cluster.kubectl("rollout", "status", "deployment/trainmaster", SYSTEM, "--timeout=200s")
    job.wait_for("jsonpath={.status.attempt}=2")
    status = job.goes_on()
    assert (status["attempt"], status["restartCount"], len(status["restarts"])) == (2, 1, 1)
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == uids


def _leader(cluster: Flavour) -> str:
    """The pod that holds the lease."""
    path = "jsonpath={.spec.holderIdentity}"
    return cluster.kubectl("get", "lease/trainmaster", SYSTEM, f"--output={path}").partition("_")[0]


def test_the_leader_killed_under_a_training_job(
    job: Job, cluster: Flavour, record_property: Callable[[str, object], None]
) -> None:
    """At once and without a word, while a rank dies: the standby judges that death, once."""
    cluster.kubectl("rollout", "status", "deployment/trainmaster", SYSTEM, "--timeout=200s")
    job.submit(training=ENDLESS)
    job.wait_for_step(20)
    uids = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    before = _leader(cluster)
    cluster.kubectl("delete", "pod", before, SYSTEM, "--grace-period=0", "--force", "--wait=false")
    began = time.monotonic()
    job.kill_rank("digits-worker-0-0")
    job.wait_for("jsonpath={.status.attempt}=2")
    record_property("seconds_to_the_next_attempt", round(time.monotonic() - began, 2))
    assert _leader(cluster) not in ("", before)
    status = job.goes_on()
    assert (status["attempt"], status["restartCount"], len(status["restarts"])) == (2, 1, 1)
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == uids


def test_an_operator_killed_again_and_again(job: Job, cluster: Flavour) -> None:
    job.submit(training=ENDLESS)
    for _ in range(4):
        _kill_operator(cluster)
        time.sleep(3)  # at moments that nobody chose
    status = job.goes_on()
    assert (status["attempt"], status["restartCount"]) == (1, 0)


@pytest.mark.slow
def test_an_api_server_that_is_away_for_a_minute(job: Job, breakable: Flavour) -> None:
    job.submit(training=ENDLESS)
    before = job.wait_for_step(20)["progress"]["step"]
    breakable.stop("kube-apiserver")
    time.sleep(60)
    breakable.start("kube-apiserver")
    deadline = time.monotonic() + 400
    # The first status may tell what agents had said before the outage, 10 s of steps at most after the one before it.
    while (after := job.status()["progress"]["step"]) <= before + 100:
        assert time.monotonic() < deadline, "progress is told again soon"
        time.sleep(0.5)
    assert after > before + 200, "training went on all the time"
    status = job.goes_on()
    assert (status["attempt"], status["restartCount"]) == (1, 0)


@pytest.mark.slow
def test_a_node_that_is_lost(job: Job, breakable: Flavour) -> None:
    """With what a job has by itself: its pods are replaced on the other node long before Kubernetes gives them up."""
    spread = {
        "labelSelector": {"matchLabels": {"trainmaster.dev/job": "digits"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": spread}]
        }
    }
    job.submit(training=ENDLESS, workers={"replicas": 2, "affinity": affinity})
    job.wait_for_step(20)
    lost = [name for name, pod in job.pods().items() if pod["spec"]["nodeName"] == "node-2"]
    assert len(lost) == 1
    breakable.node("node-2").kill()
    job.wait_for("jsonpath={.status.attempt}=2")
    status = job.wait("Running")
    (line,) = status["restarts"]  # also where its rank was killed before its agent, and that told of it
    assert (line["class"], line["evidence"].split(":")[0]) == ("Disruption", "NodeSilent"), json.dumps(line)
    replaced = {pod["spec"]["nodeName"] for pod in job.pods().values() if "deletionTimestamp" not in pod["metadata"]}
    assert replaced == {"node-1"}
