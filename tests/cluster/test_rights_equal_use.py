"""The chart grants the operator exactly what it uses: its ClusterRole against the audit log of a real job's whole life.

The job meets everything that calls for a right: names that are taken, edits that collide with the operator's own
writes, a suspension, an end, and a TTL.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

pytestmark = pytest.mark.cluster

NAMESPACE = "rights"
OPERATOR = "system:serviceaccount:trainmaster-system:trainmaster"
# What every service account may read, by Kubernetes' own roles: the keys that tokens are checked with, and discovery.
OPEN_TO_ALL = ("/openid/v1/jwks", "/.well-known/openid-configuration", "/version", "/api", "/apis", "/healthz")
Right = tuple[str, str, str]

JOB: dict[str, Any] = {
    "apiVersion": "trainmaster.dev/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": NAMESPACE},
    "spec": {
        "strategy": {"type": "OneDevice"},
        "training": {
            "task": "trainmaster_trainer.tasks.digits:Digits",
            "steps": 100_000_000,  # until it is suspended
            "globalBatchSize": 64,
        },
        "ttlSecondsAfterFinished": 0,
    },
}
SQUATTERS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits"}, "spec": {"ports": [{"port": 1}]}},
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "digits-worker-0-0"},
        "spec": {
            "containers": [{"name": "squatter", "image": "nowhere.invalid/nothing", "imagePullPolicy": "Never"}],
            "terminationGracePeriodSeconds": 0,
        },
    },
]


class Cluster(Protocol):
    """What this test needs of the fixture `cluster`."""

    audit_log: Path

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator."""


@pytest.mark.timeout(600)
def test_rights_equal_use(cluster: Cluster) -> None:
    _live(cluster)
    granted = _granted(cluster)
    used = {right for right, _ in _asked(cluster)}
    assert granted - used == set(), "granted and not used: take it out of the chart"
    assert used - granted == set(), "used and not granted: the operator asked for what it may not"
    assert [right for right, allowed in _asked(cluster) if not allowed] == []


def test_nothing_else_is_read(cluster: Cluster) -> None:
    """Requests that are for no resource go only where every service account may."""
    paths = {event["requestURI"].partition("?")[0] for event in _events(cluster) if "objectRef" not in event}
    assert {path for path in paths if path not in OPEN_TO_ALL} == set()


def _live(cluster: Cluster) -> None:
    """A job's life in which the operator has a use for each of its rights."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    try:
        _try_names_that_are_taken(cluster)
        _kubectl(cluster, "wait", "trainingjob/digits", "--for=jsonpath={.status.phase}=Running", "--timeout=120s")
        _edit_until_writes_collide(cluster)
        _patch(cluster, {"spec": {"suspend": True}})
        _kubectl(cluster, "wait", "trainingjob/digits", "--for=jsonpath={.status.phase}=Suspended", "--timeout=60s")
        _kubectl(cluster, "wait", "pods", "--all", "--for=delete", "--timeout=120s")
        _patch(cluster, {"spec": {"suspend": False, "activeDeadlineSeconds": 1}})
        _kubectl(cluster, "wait", "trainingjob/digits", "--for=delete", "--timeout=120s")
        _await(lambda: ("trainmaster.dev", "trainingjobs", "delete") in _used(cluster), "the job is deleted")
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _try_names_that_are_taken(cluster: Cluster) -> None:
    """Somebody else's pod and Service have the names: the operator looks whose they are, waits, and takes over."""
    for squatter in SQUATTERS:
        _kubectl(cluster, "create", "-f", "-", stdin=json.dumps(squatter))
    _kubectl(cluster, "create", "-f", "-", stdin=json.dumps(JOB))
    wanted = {("", "services", "get"), ("", "pods", "get")}
    _await(lambda: wanted <= _used(cluster), "the operator looks whose the names are")
    _kubectl(cluster, "delete", "service/digits", "pod/digits-worker-0-0")


def _edit_until_writes_collide(cluster: Cluster) -> None:
    """A user edits the job without pause, until one of the operator's status writes meets a newer version."""
    stop = threading.Event()

    def edit() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            _patch(cluster, {"metadata": {"annotations": {"example.org/edit": str(number)}}})

    editors = [threading.Thread(target=edit, daemon=True) for _ in range(4)]
    for editor in editors:
        editor.start()
    try:
        _await(lambda: ("trainmaster.dev", "trainingjobs", "get") in _used(cluster), "a status write collides", 240)
    finally:
        stop.set()
        for editor in editors:
            editor.join()


def _kubectl(cluster: Cluster, *words: str, stdin: str | None = None) -> str:
    return cluster.kubectl(f"--namespace={NAMESPACE}", *words, stdin=stdin)


def _patch(cluster: Cluster, change: dict[str, Any]) -> None:
    _kubectl(cluster, "patch", "trainingjob/digits", "--type=merge", f"--patch={json.dumps(change)}")


def _await(true: Callable[[], bool], what: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.5)  # the audit log is a file: nobody calls when it grows


def _granted(cluster: Cluster) -> set[Right]:
    role = yaml.safe_load(cluster.kubectl("get", "clusterrole", "trainmaster", "--output=yaml"))
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _events(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """What the operator asked the API server for, ever."""
    with cluster.audit_log.open() as lines:
        for line in lines:
            if OPERATOR in line and line.endswith("\n"):
                event = json.loads(line)
                if event["user"]["username"] == OPERATOR:
                    yield event


def _asked(cluster: Cluster) -> Iterator[tuple[Right, bool]]:
    """Each request for a resource, and whether it was authorized."""
    for event in _events(cluster):
        if "objectRef" in event:
            what = event["objectRef"]
            resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
            allowed = event.get("annotations", {}).get("authorization.k8s.io/decision") != "forbid"
            yield (what.get("apiGroup", ""), resource, event["verb"]), allowed


def _used(cluster: Cluster) -> set[Right]:
    return {right for right, allowed in _asked(cluster) if allowed}
