"""Every strategy in real pods: the word is changed and nothing else, and the model is the one that it should be.

Each job trains in pods of its own, some jobs at a time. Where every step is the same sum as on one device, the loss
is too; LocalSGD is another algorithm, and is held to the very bits of the same YAML on this machine. The ring between
pods is that of Hierarchical, whose leaders are in pods of their own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.local.command import Command, start_warm_parent
from tests.onebox.conftest import new_namespace
from tests.onebox.flavours import Existing, Flavour
from tests.onebox.framework_jobs import wait_until_pods_have_ended
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import Document

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

STEPS = 20
TRAINING: Document = {
    "task": "trainmaster_trainer.tasks.digits:Digits",
    "arguments": {"layers": 3, "hidden": 32, "learning_rate": 0.01},
    "steps": STEPS,
    "globalBatchSize": 32,
    "seed": 1,
}
DEVICE = "example.com/device"  # not of any plugin: the test tells the nodes that they have some
TWO_WORKERS: Document = {"replicas": 2, "cpu": "250m"}
TWO_DEVICES: Document = {"replicas": 1, "cpu": "250m", "gpus": 2, "gpuResource": DEVICE}
TWO_BY_TWO: Document = {"replicas": 2, "cpu": "250m", "gpus": 2, "gpuResource": DEVICE}

AS_ONE_DEVICE: dict[str, tuple[Document, Document]] = {
    "onedevice": ({"type": "OneDevice"}, {"replicas": 1, "cpu": "250m"}),
    "native": ({"type": "AllReduce", "allReduce": {"algorithm": "Native"}}, TWO_WORKERS),
    "driver": ({"type": "AllReduce", "allReduce": {"algorithm": "Driver"}}, TWO_WORKERS),
    "hierarchical": ({"type": "AllReduce", "allReduce": {"algorithm": "Hierarchical"}}, TWO_BY_TWO),
    "mirrored": ({"type": "Mirrored"}, TWO_DEVICES),
    "central": ({"type": "CentralStorage"}, TWO_DEVICES),
    "sharded": ({"type": "FullySharded"}, TWO_WORKERS),
    "pipeline": ({"type": "Pipeline"}, TWO_WORKERS),
    "tensor": ({"type": "Tensor"}, TWO_WORKERS),
    "mesh": ({"type": "Mesh", "mesh": {"pipeline": 2, "tensor": 2}}, TWO_BY_TWO),
}
OTHERS: dict[str, tuple[Document, Document]] = {
    "local-sgd": ({"type": "LocalSGD", "localSGD": {"every": 4}}, TWO_WORKERS),
    "gossip": ({"type": "Gossip"}, TWO_WORKERS),
}
JOBS = AS_ONE_DEVICE | OTHERS
AT_ONCE = 4  # each pod imports torch, and some machines have two cores
Ends = dict[str, "Future[Document]"]


def a_job(name: str) -> Document:
    """The YAML of one strategy."""
    strategy, workers = JOBS[name]
    kind = {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": name}}
    patience = {"hangSeconds": 600}  # steps of milliseconds: a machine that is busy for a while is no hang
    return {**kind, "spec": {"strategy": strategy, "training": TRAINING, "workers": workers, "failurePolicy": patience}}


@pytest.fixture(scope="module")
def jobs(cluster: Flavour) -> Iterator[dict[str, Job]]:
    """All of them, in one namespace."""
    with new_namespace(cluster) as namespace, _devices(cluster):
        yield {name: Job(cluster, namespace, name) for name in JOBS}


@pytest.fixture(scope="module")
def ends(jobs: dict[str, Job]) -> Iterator[Ends]:
    """The status of each job at its end."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(_end_of, job) for name, job in jobs.items()}
        pool.shutdown(cancel_futures=True)


@contextmanager
def _devices(cluster: Flavour) -> Iterator[None]:
    """Tell the scheduler of devices that no plugin has: a rank each, which then finds no GPU and trains on the CPU."""
    if type(cluster) is Existing:
        pytest.skip("the nodes of an existing cluster are not ours to change")
    _tell_nodes(cluster, "8")
    yield
    _tell_nodes(cluster, None)


def _tell_nodes(cluster: Flavour, number: str | None) -> None:
    change = json.dumps({"status": {kind: {DEVICE: number} for kind in ("capacity", "allocatable")}})
    for node in cluster.kubectl("get", "nodes", "--output=name").split():
        cluster.kubectl("patch", node, "--subresource=status", "--type=merge", f"--patch={change}")


def _end_of(job: Job) -> Document:
    job.create(a_job(job.name))
    return job.wait_for("jsonpath={.status.completionTime}")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """The ends of the two jobs that the others are compared with, on this machine."""
    socket = tmp_path_factory.mktemp("warm") / "socket"
    parent = start_warm_parent(Path(sys.executable), socket)
    try:
        return {name: _run(tmp_path_factory.mktemp(name), name, socket) for name in ("onedevice", "local-sgd")}
    finally:
        parent.terminate()
        parent.wait()


def _run(folder: Path, name: str, warm: Path) -> Document:
    command = Command(folder, warm)
    try:
        assert command.start(a_job(name)).end() == 0, command.stderr
        return command.status
    finally:
        command.close()


@pytest.mark.parametrize("name", JOBS)
def test_it_trains_to_the_end_in_pods(ends: Ends, name: str) -> None:
    status = ends[name].result()
    assert status["phase"] == "Succeeded", json.dumps(status, indent=1)
    assert (status["progress"]["step"], status["restartCount"]) == (STEPS, 0), json.dumps(status, indent=1)
    assert status["checkpoint"]["step"] == STEPS
    assert len(status["checkpoint"]["sha256"]) == 64


def test_a_finished_job_keeps_its_pods_for_their_logs(ends: Ends, jobs: dict[str, Job]) -> None:
    status, job = ends["native"].result(), jobs["native"]
    assert status["attempt"] == 1
    wait_until_pods_have_ended(job)
    assert "AllWorkersFinished" in job.events()
    assert "Finished" in job.kubectl("logs", "native-worker-0-0")


@pytest.mark.parametrize("name", AS_ONE_DEVICE)
def test_its_loss_is_that_of_one_device(ends: Ends, here: Document, name: str) -> None:
    """As exactly as the status tells it: four digits."""
    expected = here["onedevice"]["progress"]["loss"]
    assert ends[name].result()["progress"]["loss"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", ["onedevice", "local-sgd"])
def test_its_model_has_the_bits_of_the_same_file_on_this_machine(ends: Ends, here: Document, name: str) -> None:
    assert ends[name].result()["checkpoint"]["sha256"] == here[name]["checkpoint"]["sha256"]
