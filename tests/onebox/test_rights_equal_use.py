"""The chart grants the operator exactly what it uses: its roles against the audit log of a real job's whole life.

The job meets everything that calls for a right: names that are taken, edits that collide with the operator's own
writes, a suspension, an end, and a TTL.
"""

import json
import re
import threading
import time
from collections.abc import Iterator

import pytest
import yaml
from trainmaster.wire import names

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job, jobs_api
from tests.onebox.paced import ENDLESS, Document

pytestmark = pytest.mark.cluster

OPERATOR = "system:serviceaccount:trainmaster-system:trainmaster"
# What every service account may read, by Kubernetes' own roles: the keys that tokens are checked with, and discovery.
OPEN_TO_ALL = re.compile(
    r"/openid/v1/jwks|/\.well-known/openid-configuration|/version|/api|/api/v1|/apis(/[^/]+/v[^/]+)?"
)
Right = tuple[str, str, str]

SQUATTER: Document = {
    "name": "squatter",
    "image": "nowhere.invalid/nothing",
    "imagePullPolicy": "Never",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
SQUATTERS: list[Document] = [
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


@pytest.mark.timeout(900)
def test_rights_equal_use(cluster: Flavour, namespace: str) -> None:
    _live(Job(cluster, namespace))
    granted, asked = _granted(cluster), set(_asked(cluster))
    used = {right for right, _ in asked}
    assert granted - used == set(), "granted and not used: take it out of the chart"
    assert used - granted == set(), "used and not granted: the operator asked for what it may not"
    # An API server that has just begun refuses even what is granted, until it has read the roles.
    assert {right for right, allowed in asked if not allowed} - granted == set()


def test_nothing_else_is_read(cluster: Flavour) -> None:
    """Requests that are for no resource go only where every service account may."""
    paths = {event["requestURI"].partition("?")[0] for event in _events(cluster) if "objectRef" not in event}
    assert [path for path in paths if not OPEN_TO_ALL.fullmatch(path)] == []


def _live(job: Job) -> None:
    """A job's life in which the operator has a use for each of its rights."""
    _try_names_that_are_taken(job)
    job.wait("Running")
    _edit_until_writes_collide(job)
    _patch(job, {"spec": {"suspend": True}})
    job.wait("Suspended")
    job.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=300s")
    _patch(job, {"spec": {"suspend": False, "activeDeadlineSeconds": 1}})
    job.kubectl("wait", f"tj/{job.name}", "--for=delete", "--timeout=300s")


def _try_names_that_are_taken(job: Job) -> None:
    """Somebody else's pod and Service have the names: the operator looks whose they are, waits, and takes over."""
    job.create(*SQUATTERS)
    strategy, workers = {"type": "OneDevice"}, {"replicas": 1}
    job.submit(strategy=strategy, training=ENDLESS, workers=workers, ttlSecondsAfterFinished=0)
    _await_use(job.cluster, ("", "services", "get"), ("", "pods", "get"))
    job.kubectl("delete", "service/digits", "pod/digits-worker-0-0")


def _edit_until_writes_collide(job: Job) -> None:
    """A user edits the job without pause, until one of the operator's status writes meets a newer version."""
    jobs = jobs_api(job.cluster.kubeconfig)
    stop = threading.Event()

    def edit() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            change = {"metadata": {"annotations": {"example.org/edit": str(number)}}}
            jobs.patch_namespaced_custom_object(
                names.GROUP, names.VERSION, job.namespace, names.PLURAL, job.name, change
            )

    editors = [threading.Thread(target=edit, daemon=True) for _ in range(2)]
    for editor in editors:
        editor.start()
    try:
        _await_use(job.cluster, (names.GROUP, names.PLURAL, "get"))
    finally:
        stop.set()
        for editor in editors:
            editor.join()


def _patch(job: Job, change: Document) -> None:
    job.kubectl("patch", f"tj/{job.name}", "--type=merge", f"--patch={json.dumps(change)}")


def _await_use(cluster: Flavour, *wanted: Right, seconds: float = 300) -> None:
    """Read the audit log, and what comes to it, until the operator has used these rights."""
    missing, deadline = set(wanted), time.monotonic() + seconds
    with cluster.audit_log.open("rb") as log:
        while missing:
            place = log.tell()
            line = log.readline()
            if line.endswith(b"\n"):
                missing -= {right for event in _of_operator(line.decode()) for right, ok in _asked_by(event) if ok}
                continue
            assert time.monotonic() < deadline, f"not within {seconds} s: {missing}"
            log.seek(place)
            time.sleep(0.2)  # a file calls nobody when it grows


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


def _events(cluster: Flavour) -> Iterator[Document]:
    """What the operator asked the API server for, ever."""
    with cluster.audit_log.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield from _of_operator(line)


def _of_operator(line: str) -> Iterator[Document]:
    """The request that a line of the audit log tells of, if it is the operator's."""
    if OPERATOR in line and (event := json.loads(line))["user"]["username"] == OPERATOR:
        yield event


def _asked(cluster: Flavour) -> Iterator[tuple[Right, bool]]:
    """Each request for a resource, and whether it was authorized."""
    for event in _events(cluster):
        yield from _asked_by(event)


def _asked_by(event: Document) -> Iterator[tuple[Right, bool]]:
    if "objectRef" in event:
        what = event["objectRef"]
        resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
        allowed = event.get("annotations", {}).get("authorization.k8s.io/decision") != "forbid"
        yield (what.get("apiGroup", ""), resource, event["verb"]), allowed
