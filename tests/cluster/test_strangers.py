"""What is not for this operator, and what it cannot understand: left alone, told once, and no harm to others."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from trainmaster.wire.agent_states import AgentState

from .apiserver import ApiServer, Document
from .conftest import CRD
from .lab import TASK, Lab
from .operator_process import OperatorProcess

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def lax(server: ApiServer, operator: OperatorProcess) -> Iterator[None]:
    """A CRD that takes anything: an older or newer one than this operator's, say.

    The operator begins anew: a watch from before the change goes on by the old schema for a while.
    """
    name = yaml.safe_load(Path(CRD).read_text())["metadata"]["name"]
    before = server.call("GET", f"{CRDS}/{name}")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    changes: Document = {"schema": {"openAPIV3Schema": anything}, "subresources": {"status": {}}}
    _replace(server, name, {**before["spec"]["versions"][0], **changes}, accepts_nonsense=True)
    operator.kill()
    operator.ensure()
    yield
    _replace(server, name, before["spec"]["versions"][0], accepts_nonsense=False)


def _replace(server: ApiServer, name: str, version: Document, *, accepts_nonsense: bool) -> None:
    patch = [{"op": "replace", "path": "/spec/versions/0", "value": version}]
    server.call("PATCH", f"{CRDS}/{name}", patch, "application/json-patch+json")
    path = "/apis/trainmaster.dev/v1/namespaces/default/trainingjobs"
    server.await_verdict(path, _job("nonsense"), accepted=accepts_nonsense)


def _job(spec: object, name: str = "odd") -> Document:
    return {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


ODD: dict[str, object] = {
    "no-such-strategy": {"strategy": {"type": "Telepathy"}, "training": TASK},
    "wrong-types": {"strategy": {"type": "AllReduce"}, "training": {**TASK, "steps": "many"}, "workers": []},
    "from-the-future": {"strategy": {"type": "AllReduce"}, "training": TASK, "fromTheFuture": {"x": 1}},
    "a-text": "nonsense",
    "nothing": None,
}


def test_specs_that_cannot_be_read_are_told_once_and_left_alone(lab: Lab, lax: None) -> None:
    for name, spec in ODD.items():
        lab.server.call("POST", lab.jobs, _job(spec, name))
    told = {name: lab.await_job(lambda job: bool(job.get("status", {}).get("conditions")), name) for name in ODD}
    for name, job in told.items():
        (condition,) = job["status"]["conditions"]
        assert (condition["type"], condition["observedGeneration"]) == ("InvalidSpec", 1)
        lab.await_event("InvalidSpec", name)
    lab.submit("other")
    lab.await_pods("other-worker-0-0")  # others are served, and nothing was made for the odd ones
    lab.start_training("other-worker-0-0")
    lab.await_phase("Running", "other")
    versions = {name: job["metadata"]["resourceVersion"] for name, job in told.items()}
    assert {name: lab.job(name)["metadata"]["resourceVersion"] for name in ODD} == versions, "written once"


def test_a_spec_that_can_be_read_again_is_a_job_again(lab: Lab, lax: None) -> None:
    lab.server.call("POST", lab.jobs, _job({"strategy": {"type": "AllReduce"}, "training": TASK, "fromTheFuture": 1}))
    lab.await_job(lambda job: bool(job.get("status", {}).get("conditions")), "odd")
    lab.patch_job({"spec": {"fromTheFuture": None}}, "odd")
    lab.await_pods("odd-worker-0-0")
    lab.await_job(lambda job: "InvalidSpec" not in {c["type"] for c in job["status"]["conditions"]}, "odd")


def test_one_namespace_is_enough(bound: Lab, server: ApiServer) -> None:
    """With rights in one namespace, and none in the cluster."""
    bound.submit()
    bound.await_pods("digits-worker-0-0")
    (agent,) = bound.start_training("digits-worker-0-0")
    bound.await_phase("Running")
    bound.operator.kill()
    bound.operator.ensure()
    agent.state = AgentState.FINISHED
    agent.beat()
    bound.await_phase("Succeeded")
    assert "orbidden" not in bound.operator.log.read_text()


def test_edits_by_others_do_not_get_lost_and_do_not_disturb(lab: Lab) -> None:
    """Labels change all the time while the operator writes the status: conflicts are met and overcome."""
    lab.submit(workers={"replicas": 2})
    done = threading.Event()

    def meddle() -> None:
        number = 0
        while not done.is_set():
            number += 1
            lab.patch_job({"metadata": {"labels": {"number": str(number)}}})

    thread = threading.Thread(target=meddle)
    thread.start()
    try:
        lab.await_pods("digits-worker-0-0", "digits-worker-1-0")
        agents = lab.start_training("digits-worker-0-0", "digits-worker-1-0")
        lab.await_phase("Running")
        for agent in agents:
            agent.state, agent.step = AgentState.FINISHED, 100
            agent.beat()
        job = lab.await_phase("Succeeded")
    finally:
        done.set()
        thread.join()
    assert job["status"]["attempt"] == 1
    assert lab.server.audit(lab.namespace)["create pods"] == 2
