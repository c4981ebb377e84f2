"""A job that meets the faults of a bad week, one after the other, and has the model of an undisturbed one after it.

Real processes, kernel, kubelet, containerd and network: killed, stopped, deleted, drained, cut off, slowed down;
operator and API server killed under it. (Out of memory: test_out_of_memory.py.)

The short week has what no other test of this folder does to a job; `make soak` lives through the whole one.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable

import pytest

from tests.onebox.faults import PodProcesses, cut_from
from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import WORKERS, Document, paced
from tools.onebox import Cluster
from tools.onebox.shell import OneboxError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2700), pytest.mark.slow]

SYSTEM = "--namespace=trainmaster-system"


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
        self.job.goes_on()

    def wait_for_restart(self, count: int, fault: str, classes: tuple[str, ...] = ()) -> None:
        """So many lines in the ledger, the newest of one of these classes."""
        end = time.monotonic() + 400
        while True:
            lines = self.job.status().get("restarts", ())
            if len(lines) >= count and (not classes or lines[-1]["class"] in classes):
                return
            assert time.monotonic() < end, f"{fault}: {json.dumps(self.job.status(), indent=1)}"
            time.sleep(0.5)

    def processes(self, index: int) -> PodProcesses:
        """Those of one worker."""
        return PodProcesses(self.job.namespace, index, self.job.name)

    def address_of(self, index: int) -> str:
        """Where its peers reach it."""
        return str(self.job.pods()[self.job.pod_of(index)]["status"]["podIP"])


Fault = Callable[[BadWeek], None]


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
    week.job.goes_on()
    week.restarts = len(week.job.status()["restarts"])  # it may have tried again while they were apart


def slowed_down(week: BadWeek) -> None:
    """A link of 2 Mbit/s: slower steps, and no alarm."""
    limit = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "2mbit", "burst", "16kb", "latency", "400ms")
    with week.processes(1).network(*limit, undo=("tc", "qdisc", "del", "dev", "eth0", "root")):
        week.job.goes_on()
        time.sleep(10)  # long enough for a false alarm
    assert len(week.job.status()["restarts"]) == week.restarts


def deleted(week: BadWeek) -> None:
    week.job.kubectl("delete", "pod", week.job.pod_of(1), "--wait=false")
    week.after("pod deleted", ("ReplicaDeleted", "Disruption"))


def drained(week: BadWeek) -> None:
    node = week.job.pods()[week.job.pod_of(0)]["spec"]["nodeName"]
    selector = "--pod-selector=trainmaster.dev/job=digits"
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=400s", selector)
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
    week.job.goes_on()
    assert len(week.job.status()["restarts"]) == week.restarts


def operator_killed(week: BadWeek) -> None:
    week.onebox.kubectl("delete", "pods", "--all", SYSTEM, "--grace-period=0", "--force")
    week.processes(0).signal_rank(signal.SIGKILL)
    week.after("operator killed", ("Signal",))


def api_server_killed(week: BadWeek) -> None:
    week.onebox.stop("kube-apiserver", signal.SIGKILL)
    time.sleep(10)
    week.onebox.start("kube-apiserver")
    end = time.monotonic() + 400
    while True:
        try:
            week.job.status()
            break
        except OneboxError:
            assert time.monotonic() < end
            time.sleep(0.5)
    week.job.goes_on()
    assert len(week.job.status()["restarts"]) == week.restarts


SHORT: tuple[Fault, ...] = (stopped, cut_off, slowed_down, drained, daemons_killed)
WHOLE: tuple[Fault, ...] = (killed, *SHORT, deleted, operator_killed, api_server_killed)


@pytest.mark.parametrize("faults", [SHORT, pytest.param(WHOLE, marks=pytest.mark.soak)], ids=["short", "whole"])
def test_a_bad_week_ends_with_the_model_of_an_undisturbed_one(
    job: Job, undisturbed: Job, onebox: Cluster, breakable: Flavour, faults: tuple[Fault, ...]
) -> None:
    submit(job, paced(seconds=0.1))
    week = BadWeek(job, onebox)
    job.goes_on()
    for fault in faults:
        fault(week)
    saved = job.saves()
    job.kubectl("delete", "tj", job.name)
    submit(undisturbed, paced(saved["step"]))
    expected = undisturbed.wait("Succeeded", 1500)
    assert expected.get("restartCount", 0) == 0
    assert saved == {**saved, "sha256": expected["checkpoint"]["sha256"], "step": expected["checkpoint"]["step"]}


def submit(job: Job, training: Document) -> None:
    policy, checkpoint = {"maxRestarts": 20}, {"everySteps": 20, "keep": 2}
    job.submit(training=training, workers=WORKERS, failurePolicy=policy, checkpoint=checkpoint)
