"""A job that meets every fault of a bad week, one after the other, and has the model of an undisturbed one after it.

Real processes, kernel, kubelet, containerd and network: killed, stopped, deleted, drained, cut off, slowed down;
operator and API server killed under it. (Out of memory: test_out_of_memory.py.)

Its steps sleep, so that it is not over before the week is, and leaves the machine to others; those of the undisturbed
job, which takes no more steps than the week had, do not.
"""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.cluster.faults import PodProcesses, cut_from
from tests.cluster.flavours import Flavour
from tests.cluster.operator_jobs import DIGITS, Document, Job
from tools.onebox import Cluster
from tools.onebox.shell import OneboxError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2700), pytest.mark.slow]

SYSTEM = "--namespace=trainmaster-system"
FOR_EVER = 1_000_000
PACED = """
import time
from trainmaster_trainer.tasks.digits import Digits

class Paced(Digits):
    def __init__(self, seconds=0.0):
        super().__init__(hidden=32)
        self.seconds = seconds

    def loss(self, outputs, targets):
        time.sleep(self.seconds)
        return super().loss(outputs, targets)
"""
WORKERS: Document = {
    "replicas": 2,
    "memory": "1500Mi",
    "template": {
        "spec": {
            "volumes": [{"name": "task", "configMap": {"name": "task"}}],
            "containers": [{"name": "trainer", "volumeMounts": [{"name": "task", "mountPath": "/workspace"}]}],
        }
    },
}


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    return Job(cluster, namespace)


@pytest.fixture
def undisturbed(cluster: Flavour, namespace: str) -> Job:
    """The same job, left alone: started first, looked at last."""
    return Job(cluster, namespace, name="undisturbed")


class BadWeek:
    """The job, and one method per fault. Each returns when training goes on."""

    def __init__(self, job: Job, onebox: Cluster) -> None:
        self.job, self.onebox = job, onebox
        self.restarts = 0

    def after(self, fault: str, classes: tuple[str, ...]) -> None:
        """Training went on after `fault`, and the ledger names it: a survivor's cry may have been heard before it."""
        self.restarts += 1
        self.wait_for_restart(self.restarts, fault, classes)
        self.goes_on()

    def wait_for_restart(self, count: int, fault: str, classes: tuple[str, ...] = ()) -> None:
        """So many lines in the ledger, the newest of one of these classes."""
        end = time.monotonic() + 150
        while True:
            lines = self.job.status().get("restarts", ())
            if len(lines) >= count and (not classes or lines[-1]["class"] in classes):
                return
            assert time.monotonic() < end, f"{fault}: {json.dumps(self.job.status(), indent=1)}"
            time.sleep(0.5)

    def goes_on(self) -> None:
        """Some steps further than now."""
        self.job.wait("Running", 150)
        self.job.wait_for_step(self.job.status()["progress"]["step"] + 1, 150)

    def saves(self) -> Document:
        """A checkpoint of steps that came after all faults."""
        first = self.job.status()["progress"]["step"]
        end = time.monotonic() + 150
        while (saved := self.job.status().get("checkpoint", {})).get("step", 0) <= first:
            assert time.monotonic() < end, json.dumps(self.job.status(), indent=1)
            time.sleep(0.5)
        return dict(saved)

    def processes(self, index: int) -> PodProcesses:
        """Those of one worker."""
        return PodProcesses(self.job.namespace, index, self.job.name)

    def pod_of(self, index: int) -> str:
        """The pod of one worker that is up now."""
        (name,) = [
            name
            for name, pod in self.job.pods().items()
            if pod["metadata"]["labels"].get("trainmaster.dev/index") == str(index)
            and pod["metadata"]["labels"].get("trainmaster.dev/job") == self.job.name
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] == "Running"
        ]
        return name

    def address_of(self, index: int) -> str:
        """Where its peers reach it."""
        return str(self.job.pods()[self.pod_of(index)]["status"]["podIP"])


def test_a_bad_week_ends_with_the_model_of_an_undisturbed_one(
    job: Job, undisturbed: Job, onebox: Cluster, breakable: Flavour
) -> None:
    job.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "task"}, "data": {"paced.py": PACED}})
    submit(job, FOR_EVER, seconds=0.02)
    week = BadWeek(job, onebox)
    job.wait("Running")
    week.goes_on()
    killed(week)
    stopped(week)
    cut_off(week)
    slowed_down(week)
    deleted(week)
    drained(week)
    daemons_killed(week)
    operator_killed(week)
    api_server_killed(week)
    saved = week.saves()
    job.kubectl("delete", "tj", job.name)
    submit(undisturbed, saved["step"])
    expected = undisturbed.wait("Succeeded", 1500)
    assert expected.get("restartCount", 0) == 0
    assert saved == {**saved, "sha256": expected["checkpoint"]["sha256"], "step": expected["checkpoint"]["step"]}


def submit(job: Job, steps: int, seconds: float = 0.0) -> None:
    training = {**DIGITS, "task": "paced:Paced", "arguments": {"seconds": seconds}, "steps": steps}
    job.submit(
        training={**training, "globalBatchSize": 16},
        workers=WORKERS,
        failurePolicy={"maxRestarts": 20},
        checkpoint={"everySteps": 100, "keep": 2},
    )


def killed(week: BadWeek) -> None:
    week.processes(1).signal_rank(signal.SIGKILL)
    week.after("SIGKILL", ("Signal",))


def stopped(week: BadWeek) -> None:
    week.processes(0).signal_rank(signal.SIGSTOP)
    week.after("SIGSTOP", ("Hang",))


def cut_off(week: BadWeek) -> None:
    """No packet between the two workers, while both can reach the operator."""
    rules = ("nft", cut_from(week.address_of(0)))
    with week.processes(1).network(*rules, undo=("nft", "delete", "table", "inet", "cut")):
        week.wait_for_restart(week.restarts + 1, "network cut")
    week.goes_on()
    week.restarts = len(week.job.status()["restarts"])  # it may have tried again while they were apart


def slowed_down(week: BadWeek) -> None:
    """A link of 2 Mbit/s: slower steps, and no alarm."""
    limit = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "2mbit", "burst", "16kb", "latency", "400ms")
    with week.processes(1).network(*limit, undo=("tc", "qdisc", "del", "dev", "eth0", "root")):
        week.goes_on()
        time.sleep(10)  # long enough for a false alarm
    assert len(week.job.status()["restarts"]) == week.restarts


def deleted(week: BadWeek) -> None:
    week.job.kubectl("delete", "pod", week.pod_of(1), "--wait=false")
    week.after("pod deleted", ("ReplicaDeleted", "Disruption"))


def drained(week: BadWeek) -> None:
    node = week.job.pods()[week.pod_of(0)]["spec"]["nodeName"]
    selector = "--pod-selector=trainmaster.dev/job=digits"
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s", selector)
    try:
        week.onebox.kubectl("drain", node, *flags)
        week.after("drain", ("Disruption", "ReplicaDeleted"))
    finally:
        week.onebox.kubectl("uncordon", node)


def daemons_killed(week: BadWeek) -> None:
    """Kubelet and containerd: the containers live on in their shims, and nobody may notice."""
    for name in ("kubelet-node-1", "containerd-node-1"):
        week.onebox.stop(name, signal.SIGKILL)
    time.sleep(5)
    week.onebox.heal()
    week.goes_on()
    assert len(week.job.status()["restarts"]) == week.restarts


def operator_killed(week: BadWeek) -> None:
    week.onebox.kubectl("delete", "pods", "--all", SYSTEM, "--grace-period=0", "--force")
    week.processes(0).signal_rank(signal.SIGKILL)
    week.after("operator killed", ("Signal",))


def api_server_killed(week: BadWeek) -> None:
    week.onebox.stop("kube-apiserver", signal.SIGKILL)
    time.sleep(10)
    week.onebox.start("kube-apiserver")
    end = time.monotonic() + 60
    while True:
        try:
            week.job.status()
            break
        except OneboxError:
            assert time.monotonic() < end
            time.sleep(0.5)
    week.goes_on()
    assert len(week.job.status()["restarts"]) == week.restarts
