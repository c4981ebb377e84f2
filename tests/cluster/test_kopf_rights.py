"""What kopf may not do, and what it does without: the operator as a process, on a real API server."""

import itertools
import json
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from trainmaster.wire import names

from .apiserver import ApiServer
from .conftest import CRD, RULES, SYSTEM, grant, operator_token
from .lab import MERGE_PATCH, TASK, Lab
from .operator_process import OperatorProcess

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVED = f"/apis/{names.API_VERSION}/{names.PLURAL}"
_numbers = itertools.count(1)
KOPFS_FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


def test_a_kind_that_was_removed_and_is_back_is_watched_again(lab: Lab) -> None:
    """With the definition all jobs go; kopf ends, and by itself would not look for the kind again."""
    lab.submit()
    lab.await_pods("digits-worker-0-0")
    lab.server.call("DELETE", f"{DEFINITION}/{names.PLURAL}.{names.GROUP}")
    try:
        await_true(lambda: lab.server.try_call("GET", SERVED).status == 404)
        await_true(lambda: "the CustomResourceDefinition is missing" in lab.operator.log.read_text())
    finally:
        lab.server.call("POST", DEFINITION, yaml.safe_load(CRD.read_text()))
        lab.server.await_served(SERVED)
    lab.submit("other")
    lab.await_pods_of("other", "other-worker-0-0")
    assert lab.operator.alive


@pytest.fixture
def poor(server: ApiServer, process: OperatorProcess, tmp_path: Path) -> Iterator[Lab]:
    """An operator of one namespace, whose account has no rights yet."""
    process.stop()  # it would serve this namespace too
    name = f"poor-{next(_numbers)}"
    server.call("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": name}})
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig", operator_token(server, name))
    own = OperatorProcess(tmp_path, kubeconfig, name)
    lab = Lab(server, own, name)
    own.start()
    yield lab
    own.stop()


def test_rights_that_are_missing_are_named_and_used_when_they_are_there(poor: Lab) -> None:
    said, name = poor.operator.log, poor.namespace
    await_true(lambda: "needs the rights get, list and watch on trainingjobs" in said.read_text())
    rules = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb != "watch"]} for rule in RULES]
    grant(poor.server, name, f"{RBAC}/namespaces/{name}", "Role", rules)
    poor.submit()
    poor.await_pods("digits-worker-0-0")  # without the right to watch, lists have to do
    await_true(lambda: "needs the right to watch trainingjobs" in said.read_text())
    poor.server.call("PATCH", f"{RBAC}/namespaces/{name}/roles/{name}", {"rules": RULES}, MERGE_PATCH)
    poor.submit("other")
    poor.await_pods_of("other", "other-worker-0-0")


def test_kopf_writes_nothing_whatever_a_job_carries(lab: Lab) -> None:
    """A finalizer of its own name would be taken off by kopf: that is a write, and it has no right to it."""
    marks = {"finalizers": [KOPFS_FINALIZER], "annotations": {"kopf.zalando.org/touch-dummy": "x"}}
    lab.submit()
    lab.patch_job({"metadata": marks})
    lab.start_training(lab.await_pods("digits-worker-0-0")[0]["metadata"]["name"])
    lab.await_phase("Running")
    try:
        asked = lab.server.audit(lab.namespace)
        assert {what for what in asked if what.split()[1].startswith(("trainingjobs", "kopf"))} <= {
            "list trainingjobs",
            "watch trainingjobs",
            "get trainingjobs",
            "patch trainingjobs/status",
        }
        assert lab.job()["metadata"]["annotations"] == marks["annotations"]
    finally:
        lab.patch_job({"metadata": {"finalizers": None}})


def test_a_job_that_python_cannot_parse_blinds_nobody(lab: Lab) -> None:
    """Its arguments are nested so deeply; kopf by itself would end at it, and at each start again."""
    before = lab.operator.log.read_text()
    training = {**TASK, "arguments": "HERE"}
    body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "deep"}}
    text = json.dumps({**body, "spec": {"strategy": {"type": "AllReduce"}, "training": training}})
    nested = '{"a":' * 1500 + "1" + "}" * 1500
    request = urllib.request.Request(lab.server.url + lab.jobs, text.replace('"HERE"', nested).encode())  # noqa: S310
    request.add_header("Authorization", f"Bearer {lab.server.token}")
    request.add_header("Content-Type", "application/json")
    trust = ssl.create_default_context(cafile=str(lab.server.certificate))
    with urllib.request.urlopen(request, context=trust, timeout=30) as response:  # noqa: S310
        assert response.status == 201
    try:
        lab.submit("plain")
        await_true(lambda: lab.server.try_call("GET", f"{lab.core}/pods/plain-worker-0-0").status == 200)
        await_true(lambda: lab.server.try_call("GET", f"{lab.core}/pods/deep-worker-0-0").status == 404)
        assert "kopf's watch has ended" not in lab.operator.log.read_text().removeprefix(before)
    finally:
        lab.server.try_call("DELETE", f"{lab.jobs}/deep")


def await_true(holds: Callable[[], bool], seconds: float = 200.0) -> None:
    """Wait until it holds: nothing tells."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
