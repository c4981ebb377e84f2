"""The chart grants the operator exactly what it uses: its roles against the audit log of a real job's whole life.

The job meets everything that calls for a right: names that are taken, edits that collide with the operator's own
writes, a suspension, an end, and a TTL.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.onebox.flavours import Flavour

pytestmark = pytest.mark.cluster

OPERATOR = "system:serviceaccount:trainmaster-system:trainmaster"
# What every service account may read, by Kubernetes' own roles: the keys that tokens are checked with, and discovery.
OPEN_TO_ALL = re.compile(
    r"/openid/v1/jwks|/\.well-known/openid-configuration|/version|/api|/api/v1|/apis(/[^/]+/v[^/]+)?"
)
Right = tuple[str, str, str]

JOB: dict[str, Any] = {
    "apiVersion": "trainmaster.dev/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits"},
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
SQUATTER: dict[str, Any] = {
    "name": "squatter",
    "image": "nowhere.invalid/nothing",
    "imagePullPolicy": "Never",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
SQUATTERS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits"}, "spec": {"ports": [{"port": 1}]}},
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "digits-worker-0-0"},
        "spec": {
            "containers": [SQUATTER],
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    },
]


@dataclass(frozen=True)
class Here:
    """A namespace of a cluster."""

    cluster: Flavour
    namespace: str

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in it."""
        return self.cluster.kubectl(f"--namespace={self.namespace}", *words, stdin=stdin)

    def patch(self, change: dict[str, Any]) -> None:
        """Change the job."""
        self.kubectl("patch", "trainingjob/digits", "--type=merge", f"--patch={json.dumps(change)}")

    def wait(self, what: str, condition: str) -> None:
        """Until a condition holds."""
        self.kubectl("wait", what, f"--for={condition}", "--timeout=300s")


@pytest.mark.timeout(900)
def test_rights_equal_use(cluster: Flavour, namespace: str) -> None:
    _live(Here(cluster, namespace))
    granted, used = _granted(cluster), {right for right, _ in _asked(cluster)}
    assert granted - used == set(), "granted and not used: take it out of the chart"
    assert used - granted == set(), "used and not granted: the operator asked for what it may not"
    # An API server that has just begun refuses even what is granted, until it has read the roles.
    assert {right for right, allowed in _asked(cluster) if not allowed} - granted == set()


def test_nothing_else_is_read(cluster: Flavour) -> None:
    """Requests that are for no resource go only where every service account may."""
    paths = {event["requestURI"].partition("?")[0] for event in _events(cluster) if "objectRef" not in event}
    assert [path for path in paths if not OPEN_TO_ALL.fullmatch(path)] == []


def _live(here: Here) -> None:
    """A job's life in which the operator has a use for each of its rights."""
    _try_names_that_are_taken(here)
    here.wait("trainingjob/digits", "jsonpath={.status.phase}=Running")
    _edit_until_writes_collide(here)
    here.patch({"spec": {"suspend": True}})
    here.wait("trainingjob/digits", "jsonpath={.status.phase}=Suspended")
    here.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=300s")
    here.patch({"spec": {"suspend": False, "activeDeadlineSeconds": 1}})
    here.wait("trainingjob/digits", "delete")


def _try_names_that_are_taken(here: Here) -> None:
    """Somebody else's pod and Service have the names: the operator looks whose they are, waits, and takes over."""
    for squatter in SQUATTERS:
        here.kubectl("create", "-f", "-", stdin=json.dumps(squatter))
    here.kubectl("create", "-f", "-", stdin=json.dumps(JOB))
    wanted = {("", "services", "get"), ("", "pods", "get")}
    _await(lambda: wanted <= _used(here.cluster), "the operator looks whose the names are")
    here.kubectl("delete", "service/digits", "pod/digits-worker-0-0")


def _edit_until_writes_collide(here: Here) -> None:
    """A user edits the job without pause, until one of the operator's status writes meets a newer version."""
    stop = threading.Event()

    def edit() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            here.patch({"metadata": {"annotations": {"example.org/edit": str(number)}}})

    editors = [threading.Thread(target=edit, daemon=True) for _ in range(4)]
    for editor in editors:
        editor.start()
    try:
        _await(
            lambda: ("trainmaster.dev", "trainingjobs", "get") in _used(here.cluster), "a status write collides", 240
        )
    finally:
        stop.set()
        for editor in editors:
            editor.join()


def _await(true: Callable[[], bool], what: str, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.5)  # the audit log is a file: nobody calls when it grows


def _granted(cluster: Flavour) -> set[Right]:
    of_jobs = yaml.safe_load(cluster.kubectl("get", "clusterrole", "trainmaster", "--output=yaml"))
    words = ("get", "role", "trainmaster-lease", "--namespace=trainmaster-system", "--output=yaml")
    of_lease = yaml.safe_load(cluster.kubectl(*words))
    return {
        (group, resource, verb)
        for rule in of_jobs["rules"] + of_lease["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _events(cluster: Flavour) -> Iterator[dict[str, Any]]:
    """What the operator asked the API server for, ever."""
    with cluster.audit_log.open() as lines:
        for line in lines:
            if OPERATOR in line and line.endswith("\n"):
                event = json.loads(line)
                if event["user"]["username"] == OPERATOR:
                    yield event


def _asked(cluster: Flavour) -> Iterator[tuple[Right, bool]]:
    """Each request for a resource, and whether it was authorized."""
    for event in _events(cluster):
        if "objectRef" in event:
            what = event["objectRef"]
            resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
            allowed = event.get("annotations", {}).get("authorization.k8s.io/decision") != "forbid"
            yield (what.get("apiGroup", ""), resource, event["verb"]), allowed


def _used(cluster: Flavour) -> set[Right]:
    return {right for right, allowed in _asked(cluster) if allowed}
