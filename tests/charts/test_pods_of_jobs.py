"""What the operator really makes for a job gets through: its own fence, and a namespace that enforces `restricted`.

A user's template that goes beyond is stopped by the fence in every namespace, since it judges the finished pod.
"""

import time

import pytest
from trainmaster.api.job import TrainingJob
from trainmaster.cluster import isolation, manifests

from .attacks import API_TOKEN
from .client import Client
from .conftest import Plane
from .podspecs import Attack, beside, good_pod, secured, volume
from .test_admission import ALL, GOOD, attempt, await_policies
from .test_install import JOB
from .tools import NAMESPACE, Object

SETTINGS = manifests.PodSettings("http://10.96.0.9:8080", "trainmaster/trainer:dev", "IfNotPresent")
SERVERS: Object = {"strategy": {"type": "ParameterServer"}, "parameterServers": {"replicas": 1}}
CLAIM: Object = {"storage": {"persistentVolumeClaim": {"claimName": "data"}}}
GPU: Object = {"workers": {"gpus": 1, "cpu": 4, "memory": "8Gi", "nodeSelector": {"a": "b"}}}
CODE_IMAGE: Object = {"image": {"reference": f"registry/code@sha256:{'a' * 64}"}}
CODE_GIT: Object = {"git": {"repository": "https://host/a.git", "commit": "a" * 40, "secretName": "git"}}
WHEELS: Object = {"names": ["timm==1.0.19"], "wheels": {"persistentVolumeClaim": {"claimName": "wheels"}}}


@pytest.fixture(scope="module")
def operator(plane: Plane) -> Client:
    plane.install(ALL)
    plane.admin.make_namespace("team-a")
    plane.admin.make_namespace("strict", {"pod-security.kubernetes.io/enforce": "restricted"})
    client = plane.admin.as_service_account(NAMESPACE, "trainmaster")
    await_policies(client, *GOOD)
    return client


def _job(changes: Object, namespace: str) -> TrainingJob:
    metadata = {"name": "digits", "namespace": namespace, "uid": "6f1d3c1e-0000-4000-8000-000000000001"}
    return TrainingJob.model_validate({**JOB, "metadata": metadata, "spec": {**JOB["spec"], **changes}})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        SERVERS,
        {"workers": {"image": "my/torch:1"}},
        {"checkpoint": CLAIM},
        GPU,
        {"training": {**JOB["spec"]["training"], "code": CODE_IMAGE}},
        {"training": {**JOB["spec"]["training"], "code": CODE_GIT, "packages": WHEELS}},
    ],
    ids=["smallest", "parameter servers", "own image", "claim", "gpu", "code of an image", "code of git and wheels"],
)
def test_what_the_operator_makes_is_admitted(operator: Client, changes: Object) -> None:
    job = _job(changes, "strict")
    for kind, thing in (("services", manifests.service(job)), ("networkpolicies", isolation.policy(job))):
        reply = attempt(operator, kind, thing, "strict")
        assert reply.ok, reply.message
    for role in job.spec.roles:
        reply = attempt(operator, "pods", manifests.pod(job, role, 0, 0, SETTINGS), "strict")
        assert reply.ok, reply.message


HOST: Object = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}
PRIVILEGED: Object = {
    "containers": [{"name": "trainer", "securityContext": {"privileged": True, "allowPrivilegeEscalation": True}}]
}
ROOT: Object = {"securityContext": {"runAsUser": 0, "runAsNonRoot": False}}
SIDECAR: Object = {"containers": [{"name": "beside", "image": "x"}]}
TOKEN: Object = {"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}
CLOUD_SOURCE: Object = {"serviceAccountToken": {"path": "t", "audience": "sts.cloud.example"}}
CLOUD: Object = {"volumes": [{"name": "cloud-token", "projected": {"sources": [CLOUD_SOURCE]}}]}
OTHER: Object = {"serviceAccountToken": {"path": "t", "audience": "elsewhere.example"}}
LOCKED: Object = {"containers": [{"name": "trainer", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}]}


@pytest.mark.parametrize(
    ("workers", "refusal"),
    [
        (HOST, "volumes must be of type"),
        ({"template": {"spec": PRIVILEGED}}, "must not be privileged"),
        ({"template": {"spec": ROOT}}, "runAsNonRoot"),
        (
            {"template": {"spec": SIDECAR}},
            "container beside must set securityContext.allowPrivilegeEscalation to false",
        ),
        ({"template": {"spec": {"automountServiceAccountToken": True}}}, "automountServiceAccountToken"),
        ({"template": {"spec": {"nodeName": "control-plane"}}}, "nodeName"),
        ({"template": {"spec": {"hostUsers": True, "hostAliases": []}}}, None),
        (TOKEN, "volume t: a projected service account token must not be for the API server"),
        (CLOUD, None),
        ({"template": {"spec": LOCKED}}, "container trainer adds a capability that is not among admissionPolicy.capab"),
        ({"serviceAccountName": "powerful"}, "service account powerful is not among"),
        ({"priorityClassName": "system-node-critical"}, "priority classes"),
    ],
)
def test_a_job_cannot_ask_for_more_than_its_author_has(
    plane: Plane, operator: Client, workers: Object, refusal: str | None
) -> None:
    """The confused deputy: somebody who may only create TrainingJobs lets the operator make the pod."""
    plane.admin.call("POST", "/api/v1/namespaces/team-a/serviceaccounts", {"metadata": {"name": "powerful"}})
    pod = manifests.pod(_job({"workers": workers}, "team-a"), "worker", 0, 0, SETTINGS)
    reply = attempt(operator, "pods", pod)
    if refusal is None:
        assert reply.ok, reply.message
    else:
        assert not reply.ok
        assert refusal in reply.message


def test_an_administrator_allows_what_clouds_meshes_and_fast_networks_add(plane: Plane) -> None:
    """By values of the chart, without giving up the rest of the fence."""
    plane.install(
        'admissionPolicy.sidecars=["beside"]',
        'admissionPolicy.capabilities=["NET_BIND_SERVICE","IPC_LOCK"]',
        'admissionPolicy.tokenAudiences=["sts.cloud.example"]',
    )
    thief = plane.admin.as_service_account(NAMESPACE, "trainmaster")
    wanted: Object = {**CLOUD, "template": {"spec": {"containers": [*LOCKED["containers"], *SIDECAR["containers"]]}}}
    await_admitted(thief, manifests.pod(_job({"workers": wanted}, "team-a"), "worker", 0, 0, SETTINGS))
    for attack in (
        Attack("another", volume(projected={"sources": [OTHER]}), "has a token with an audience"),
        Attack("the API server", volume(projected={"sources": [API_TOKEN]}), "must not be for the API server"),
        Attack("more", secured(capabilities={"drop": ["ALL"], "add": ["SYS_PTRACE"]}), "adds a capability"),
        Attack("privileged", beside("containers"), "container beside must not be privileged"),
    ):
        reply = attempt(thief, "pods", attack.on(good_pod()))
        assert not reply.ok, attack.name
        assert attack.refusal in reply.message


def await_admitted(operator: Client, pod: Object) -> None:
    """The API server takes up a changed policy within a second or so, without telling when."""
    deadline = time.monotonic() + 200
    while not (reply := attempt(operator, "pods", pod)).ok:
        assert time.monotonic() < deadline, reply.message
        time.sleep(0.1)
