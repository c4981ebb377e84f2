"""Code that an image volume carries, in real pods: on a node with containerd 2, as Debian's mounts no images.

`make test-frameworks` runs it: the first time it builds that containerd (docs/decisions/0194).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import Document
from tools.onebox import Cluster, images
from tools.onebox.node import NEWER_NODE_TAINT
from tools.onebox.paths import NEWER_NODE, NODE_NAMES
from tools.onebox.processes import wait as wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

IMAGE = "registry.example/pictures"
# At the first attempt it waits for the end that the test brings.
SCRIPT = """
import os, time
from parts.naming import greet

attempt = int(os.environ["TRAINMASTER_ATTEMPT"])
try:
    open("written", "w")
except OSError as error:
    print(greet(), "rank", os.environ["RANK"], "attempt", attempt, "in", os.getcwd(), error.strerror, flush=True)
time.sleep(600 if attempt == 1 else 0)
"""
THERE: Document = {
    "nodeSelector": {"kubernetes.io/hostname": NEWER_NODE},
    "tolerations": [{"key": NEWER_NODE_TAINT["key"], "operator": "Exists"}],
}


@pytest.fixture(scope="module")
def newer(cluster: Flavour) -> Iterator[Cluster]:
    """The cluster, with a third node whose containerd mounts images."""
    if not isinstance(cluster, Cluster):
        pytest.skip("the node is one of the one-machine cluster")
    node = cluster.node(NEWER_NODE)
    node.start()
    wait_until(node.is_ready, f"{NEWER_NODE} is ready", 120)
    yield cluster
    node.remove()


@pytest.fixture
def job(newer: Cluster, namespace: str) -> Job:
    return Job(newer, namespace, "mine")


def code_of(reference: str) -> Document:
    return {"command": ["python3", "train.py"], "code": {"image": {"reference": reference}}}


def an_image(cluster: Cluster, folder: Path, says: str, node: str = NEWER_NODE) -> str:
    """Give the node an image of code, and return its name."""
    (folder / "code" / "parts").mkdir(parents=True, exist_ok=True)
    (folder / "code" / "parts" / "naming.py").write_text(f"def greet():\n    return {says!r}\n")
    (folder / "code" / "train.py").write_text(SCRIPT)
    digest = images.pack(folder / "code", folder / "code.tar")
    cluster.node(node).take_in(IMAGE, folder / "code.tar")
    return f"{IMAGE}@{digest}"


def test_it_trains_and_is_the_same_after_a_loss(job: Job, newer: Cluster, tmp_path: Path) -> None:
    reference = an_image(newer, tmp_path, "an image trains")
    job.submit(training=code_of(reference), workers={"replicas": 2, **THERE})
    job.wait("Running")
    assert an_image(newer, tmp_path, "changed since") != reference
    job.kubectl("delete", "pod", "mine-worker-1-0", "--grace-period=1", "--wait=false")
    status = job.wait("Succeeded")
    assert status["code"]["source"] == reference
    for pod, rank in (("mine-worker-0-0", 0), ("mine-worker-1-1", 1)):
        log = job.kubectl("logs", pod, "--container=trainer")
        line = f"an image trains rank {rank} attempt 2 in /run/trainmaster/bundle Read-only file system"
        assert line in log, log


def test_it_is_the_same_after_a_suspension(job: Job, newer: Cluster, tmp_path: Path) -> None:
    job.submit(training=code_of(an_image(newer, tmp_path, "it goes on")), workers={"replicas": 1, **THERE})
    job.wait("Running")
    an_image(newer, tmp_path, "changed since")
    for suspend, phase in (("true", "Suspended"), ("false", "Succeeded")):
        job.kubectl("patch", "tj/mine", "--type=merge", f'--patch={{"spec": {{"suspend": {suspend}}}}}')
        job.wait(phase)
    (pod,) = job.pods()
    assert "it goes on rank 0 attempt 2" in job.kubectl("logs", pod, "--container=trainer")


def test_one_that_is_not_there_is_waited_for_and_named(job: Job) -> None:
    reference = f"127.0.0.1:1/no/such@sha256:{'0' * 64}"
    workers = {"replicas": 1, **THERE}
    job.submit(training=code_of(reference), workers=workers, failurePolicy={"startSeconds": 5})
    status = job.wait("Failed", 120)
    assert status["reason"] == "ImagePullBackOff"
    message = job.condition("Finished")["message"]
    assert reference in message
    assert "spec.training.code.image" in message


def test_a_node_that_cannot_mount_it_is_named(cluster: Flavour, namespace: str, tmp_path: Path) -> None:
    if not isinstance(cluster, Cluster):
        pytest.skip("the nodes are those of the one-machine cluster")
    job, older = Job(cluster, namespace, "mine"), NODE_NAMES[0]
    there = {"nodeSelector": {"kubernetes.io/hostname": older}}
    job.submit(training=code_of(an_image(cluster, tmp_path, "never", older)), workers={"replicas": 1, **there})
    assert job.wait("Failed", 120)["reason"] == "ImageNotMounted"
    message = job.condition("Finished")["message"]
    assert "cannot mount an image: containerd 2.1 or CRI-O 1.31 is needed" in message
    assert "spec.training.code.url or git" in message
