"""Objects that somebody forged or edited, and hundreds of changes at once: nobody else is moved by them."""

# ruff: noqa: S311  a seed that is known is the point

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from random import Random

import pytest
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState

from .agents import Agent
from .apiserver import Document
from .lab import MERGE_PATCH, Lab

PODS = ("quiet-worker-0-0", "quiet-worker-1-0")
FORGED, EDITED, CHANGES = 60, 80, 600
RUBBISH: tuple[object, ...] = (
    None, True, 0, -1, 2**53, 10**30, 1.5, "", "x", "\u0000", "🔥" * 500, "9" * 400, "2026-13-45T99:99:99Z",
    [], {}, [[]], {"a": {"b": {}}}, [None], ["Succeeded"], {"worker-0": -5}, {"worker-0": 10**12},
)  # fmt: skip
ANNOTATIONS = {
    "kopf.zalando.org/last-handled-configuration": "{" * 1000,
    "trainmaster.dev/anything": "🔥" * 10_000,
    "workflows.argoproj.io/pod-gc-strategy": "no slash",
    "example.org/large": "x" * 200_000,
}


@pytest.fixture
def neighbours(lab: Lab) -> Iterator[list[Agent]]:
    """A job that trains; afterwards it must have gone on as if alone."""
    lab.submit("quiet", workers={"replicas": 2})
    lab.await_pods_of("quiet", *PODS)
    agents = lab.start_training(*PODS)
    before = lab.await_phase("Running", "quiet")
    uids = [lab.pod(name)["metadata"]["uid"] for name in PODS]
    yield agents
    assert lab.operator.alive
    assert lab.operator.probe("healthz") == lab.operator.probe("readyz") == 200
    for agent in agents:
        agent.state, agent.step, agent.phase = AgentState.FINISHED, 100, "done"
        assert agent.beat().status in (200, 204)
    done = lab.await_phase("Succeeded", "quiet")
    assert (done["status"]["attempt"], done["status"]["restartCount"]) == (1, 0)
    assert done["status"]["startTime"] == before["status"]["startTime"]
    assert [lab.pod(name)["metadata"]["uid"] for name in PODS] == uids
    assert "Traceback" not in lab.operator.log.read_text().rpartition("at work")[2]


def test_a_status_edited_by_hand(lab: Lab, neighbours: list[Agent]) -> None:
    """Every member to every kind of rubbish that the schema lets through, and some that it does not."""
    lab.submit("victim")
    lab.await_pods_of("victim", "victim-worker-0-0")
    random, fields = Random(1), (
        "phase", "attempt", "conditions", "incarnations", "startTime", "runningTime", "completionTime", "progress",
        "checkpoint", "replicas", "restartCount", "restarts", "message", "reason", "goodput", "observedGeneration",
        "lastLines",
    )  # fmt: skip
    taken = 0
    for _ in range(EDITED):
        status = {field: random.choice(RUBBISH) for field in random.sample(fields, random.choice([1, 1, 1, 2]))}
        path = f"{lab.jobs}/victim/status"
        taken += lab.server.try_call("PATCH", path, {"status": status}, MERGE_PATCH).status == 200
    assert taken > EDITED / 10, "the schema lets nothing through, so nothing was tried"
    _serves_another(lab)


def test_annotations_with_rubbish(lab: Lab, neighbours: list[Agent]) -> None:
    for name in ("victim", "quiet"):
        if name == "victim":
            lab.submit(name)
        lab.patch_job({"metadata": {"annotations": ANNOTATIONS, "labels": {names.LABEL_JOB: "quiet"}}}, name)
    lab.await_pods_of("victim", "victim-worker-0-0")
    _serves_another(lab)


def test_pods_that_claim_to_be_of_a_job(lab: Lab, neighbours: list[Agent]) -> None:
    """With its labels, its owner, and every number that a label can hold: none takes a worker's place."""
    random, job = Random(2), lab.job("quiet")
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": "quiet",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    for number in range(FORGED):
        labels = {
            names.LABEL_JOB: "quiet",
            names.LABEL_ROLE: random.choice(["worker", "parameterServer", "queen", ""]),
            names.LABEL_INDEX: random.choice(["0", "1", "2", "0-1", "x", "9" * 60, "0"]),
            names.LABEL_INCARNATION: random.choice(["0", "1", "7", "0-1", "x", "9" * 60, "0"]),
        }
        metadata: Document = {"name": f"forged-{number}", "labels": labels}
        if random.random() < 0.7:
            metadata["ownerReferences"] = [owner]
        spec = {"containers": [{"name": names.MAIN_CONTAINER, "image": "x"}]}
        lab.server.call("POST", f"{lab.core}/pods", {"metadata": metadata, "spec": spec})
    _serves_another(lab)
    neighbours[0].step = 50
    assert neighbours[0].beat().status in (200, 204)


def test_hundreds_of_changes_at_once(lab: Lab, neighbours: list[Agent]) -> None:
    """Four people who edit a job and a pod without pause."""

    def edit(start: int) -> None:
        """Over one connection: a new one for each change would be slower than the operator is."""
        trust = ssl.create_default_context(cafile=str(lab.server.certificate))
        line = http.client.HTTPSConnection("127.0.0.1", lab.server.port, context=trust)
        headers = {"Authorization": f"Bearer {lab.server.token}", "Content-Type": MERGE_PATCH}
        for number in range(start, start + CHANGES // 4):
            change = json.dumps({"metadata": {"annotations": {"example.org/edit": str(number)}}})
            path = f"{lab.jobs}/quiet" if number % 10 == 0 else f"{lab.core}/pods/{PODS[number % 2]}"
            line.request("PATCH", path, change, headers)
            answers.append(line.getresponse().read())
        line.close()

    answers: list[bytes] = []
    editors = [threading.Thread(target=edit, args=(start,)) for start in range(0, CHANGES, CHANGES // 4)]
    for editor in editors:
        editor.start()
    _serves_another(lab)
    for editor in editors:
        editor.join()
    assert len([answer for answer in answers if b'"kind":"Status"' not in answer]) > CHANGES / 2
    assert lab.server.audit(lab.namespace)["patch trainingjobs/status"] < 40, "what others change costs no writes"


def _serves_another(lab: Lab) -> None:
    """A new job is begun and trains meanwhile."""
    lab.submit("other")
    lab.await_pods_of("other", "other-worker-0-0")
    lab.start_training("other-worker-0-0")
    lab.await_phase("Running", "other")
