"""The real operator at work with the chart's rights, behind the chart's fence, on a private API server.

Nothing runs its pods here; what it makes, and what it says where it may not, is what counts.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port

from .conftest import Plane
from .test_admission import await_policies
from .test_install import JOB
from .tools import NAMESPACE, Object

TEAMS = ("team-a", "team-b")


@contextmanager
def _operator(plane: Plane, folder: Path, *arguments: str, **variables: str) -> Iterator[Path]:
    """The operator as its pod would run it, except that its token comes by a kubeconfig; gives its log."""
    client = plane.admin.as_service_account(NAMESPACE, "trainmaster")
    listen = [f"--listen=127.0.0.1:{free_port()}", f"--probes=127.0.0.1:{free_port()}"]
    listen += [f"--readiness=127.0.0.1:{free_port()}", f"--lease={NAMESPACE}/trainmaster"]
    environment = {**os.environ, "KUBECONFIG": str(client.kubeconfig(folder / "operator.kubeconfig"))} | variables
    log = folder / "operator.log"
    command = [sys.executable, "-m", "trainmaster", "operator", *listen, *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield log
    finally:
        process.terminate()
        assert process.wait(100) == 0, log.read_text()


@pytest.fixture(scope="module", autouse=True)
def teams(plane: Plane) -> None:
    plane.install()
    for name in TEAMS:
        plane.admin.make_namespace(name, {"pod-security.kubernetes.io/enforce": "restricted"})
        plane.admin.make_service_account(name, "reader")
    await_policies(plane.admin.as_service_account(NAMESPACE, "trainmaster"), "pods", "services")


def _create(plane: Plane, namespace: str, name: str, **workers: object) -> None:
    spec = {**JOB["spec"], "workers": workers}
    path = f"/apis/trainmaster.dev/v1/namespaces/{namespace}/trainingjobs"
    plane.admin.done("POST", path, {**JOB, "metadata": {"name": name}, "spec": spec})


def _await(found: Callable[[], object], log: Path, seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)  # the tests look from outside, as a user does who waits for kubectl to show something


def _pods(plane: Plane, namespace: str) -> set[str]:
    pods = plane.admin.done("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {pod["metadata"]["name"] for pod in pods}


def _status(plane: Plane, namespace: str, name: str) -> Object:
    path = f"/apis/trainmaster.dev/v1/namespaces/{namespace}/trainingjobs/{name}"
    status: Object = plane.admin.done("GET", path).get("status", {})
    return status


def test_the_rights_are_enough_and_the_fence_is_not_in_the_way(plane: Plane, tmp_path: Path) -> None:
    with _operator(plane, tmp_path) as log:
        _create(plane, "team-a", "plain")
        _await(lambda: "plain-worker-0-0" in _pods(plane, "team-a"), log)
        _await(lambda: plane.admin.call("GET", "/api/v1/namespaces/team-a/services/plain").ok, log)
    assert "cannot" not in log.read_text(), "RBAC refused something"


def test_what_the_fence_denies_is_told_and_waits_until_it_is_corrected(plane: Plane, tmp_path: Path) -> None:
    with _operator(plane, tmp_path) as log:
        _create(plane, "team-a", "greedy", template={"spec": {"nodeName": "control-plane"}})
        told = "nodeName must not be set"
        _await(lambda: told in str(_status(plane, "team-a", "greedy").get("conditions")), log)
        assert "greedy-worker-0-0" not in _pods(plane, "team-a")
        path = "/apis/trainmaster.dev/v1/namespaces/team-a/trainingjobs/greedy"
        corrected = {"spec": {"workers": {"template": None}}}
        assert plane.admin.call("PATCH", path, corrected, "application/merge-patch+json").ok
        _await(lambda: "greedy-worker-0-0" in _pods(plane, "team-a"), log)


def test_a_job_waits_for_a_service_account_until_it_is_allowed(plane: Plane, tmp_path: Path) -> None:
    with _operator(plane, tmp_path) as log:
        _create(plane, "team-a", "reader", serviceAccountName="reader")
        told = "have an administrator add it"
        _await(lambda: told in str(_status(plane, "team-a", "reader").get("conditions")), log)
        assert "reader-worker-0-0" not in _pods(plane, "team-a")
        plane.install('admissionPolicy.serviceAccounts=["default","reader"]')
        _await(lambda: "reader-worker-0-0" in _pods(plane, "team-a"), log)


POLICIES = "/apis/networking.k8s.io/v1/namespaces/team-a/networkpolicies"


def test_no_pod_of_a_job_is_made_before_its_network_policy(plane: Plane, tmp_path: Path) -> None:
    """At first a policy of somebody else has the name."""
    plane.install("jobNetworkPolicy.enabled=true")
    plane.admin.done("POST", POLICIES, {"metadata": {"name": "alone"}, "spec": {"podSelector": {}}})
    with _operator(plane, tmp_path, TRAINMASTER_JOB_NETWORK_POLICY="true") as log:
        _create(plane, "team-a", "alone")
        told = "no pod is made before the job has its own"
        _await(lambda: told in str(_status(plane, "team-a", "alone").get("conditions")), log)
        assert "alone-worker-0-0" not in _pods(plane, "team-a")
        plane.admin.done("DELETE", f"{POLICIES}/alone")
        _await(lambda: "alone-worker-0-0" in _pods(plane, "team-a"), log)
    own = {"podSelector": {"matchLabels": {"trainmaster.dev/job": "alone"}}}
    spec = plane.admin.done("GET", f"{POLICIES}/alone")["spec"]
    assert spec == {**own, "ingress": [{"from": [own]}], "policyTypes": ["Ingress"]}


def test_namespaced_mode_works_without_any_right_elsewhere(plane: Plane, tmp_path: Path) -> None:
    """Last: it turns the release into a namespaced one."""
    plane.install('namespaces=["team-b"]', "crds.install=true")
    _create(plane, "team-a", "unseen")
    _create(plane, "team-b", "seen")
    with _operator(plane, tmp_path, "--namespace=team-b") as log:
        _await(lambda: "seen-worker-0-0" in _pods(plane, "team-b"), log)
    assert "unseen-worker-0-0" not in _pods(plane, "team-a")
    assert "cannot" not in log.read_text(), "RBAC refused something"
