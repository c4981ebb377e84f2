"""The admission policy against a thief of the operator's token: attacks are refused, the operator's own work is not.

Each attack is also made by the administrator, who gets it through: so it is the policy that refuses it.
"""

import time

import pytest

from .attacks import NETWORK_POLICY_ATTACKS, POD_ATTACKS, SERVICE_ATTACKS
from .client import Client, Reply
from .conftest import Plane
from .podspecs import Attack, good_network_policy, good_pod, good_service, metadata
from .test_install import JOB
from .tools import NAMESPACE, Object, of_kind, render

TEAM = "/api/v1/namespaces/team-a"
ALL = "jobNetworkPolicy.enabled=true"  # a value of the chart with which all policies are there
GOOD = {"pods": good_pod, "services": good_service, "networkpolicies": good_network_policy}
ATTACKS = {"pods": POD_ATTACKS, "services": SERVICE_ATTACKS, "networkpolicies": NETWORK_POLICY_ATTACKS}
JOBS = "/apis/trainmaster.dev/v1/namespaces/team-a/trainingjobs"
DENIED = ("kube-system", "kube-public", "kube-node-lease", NAMESPACE)


@pytest.fixture(scope="module")
def thief(plane: Plane) -> Client:
    """Somebody with a token of the operator's service account, in a cluster where the policies are at work."""
    plane.install(ALL)
    plane.admin.make_namespace("team-a")
    plane.admin.make_service_account("team-a", "powerful")
    for namespace in DENIED:
        plane.admin.make_service_account(namespace, "default")
    operator = plane.admin.as_service_account(NAMESPACE, "trainmaster")
    await_policies(operator, *GOOD)
    return operator


def await_policies(operator: Client, *resources: str) -> None:
    """The API server takes up a new policy within a second or so, without telling when."""
    deadline = time.monotonic() + 200
    while any(attempt(operator, one, {**GOOD[one](), "metadata": {"name": "bad"}}).ok for one in resources):
        assert time.monotonic() < deadline, "the policies did not come into force"
        time.sleep(0.1)


def attempt(who: Client, resource: str, thing: Object, namespace: str = "team-a") -> Reply:
    """Make it, without keeping it."""
    version = thing["apiVersion"]
    group = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    return who.call("POST", f"{group}/namespaces/{namespace}/{resource}?dryRun=All", thing)


def _refused_by_policy(reply: Reply, policy: str, reason: str) -> None:
    """403 where an administrator could allow it, so that a job waits; 422 where the pod itself is wrong."""
    assert reply.status == (403 if "admissionPolicy." in reply.message else 422), reply
    assert f"ValidatingAdmissionPolicy '{policy}'" in reply.message
    assert reason in reply.message


@pytest.mark.parametrize(("policy", "attacks"), ATTACKS.items())
def test_every_rule_of_the_policies_has_an_attack(policy: str, attacks: tuple[Attack, ...]) -> None:
    """So a rule that is taken out is missed."""
    rendered = of_kind(render(ALL), "ValidatingAdmissionPolicy")
    (rules,) = [one["spec"]["validations"] for one in rendered if one["metadata"]["name"] == f"trainmaster-{policy}"]
    words = [rule.get("message") or rule["messageExpression"] for rule in rules]
    bare = [text for text in words if not any(attack.refusal in text for attack in attacks)]
    assert [text for text in bare if "no TrainingJob may run in namespace" not in text] == []


def test_the_operators_own_work_is_allowed(thief: Client) -> None:
    for resource, good in GOOD.items():
        reply = attempt(thief, resource, good())
        assert reply.ok, reply.message


@pytest.mark.parametrize("attack", POD_ATTACKS, ids=lambda attack: attack.name)
def test_a_bad_pod_is_refused(plane: Plane, thief: Client, attack: Attack) -> None:
    pod = attack.on(good_pod())
    _refused_by_policy(attempt(thief, "pods", pod), "trainmaster-pods", attack.refusal)
    allowed = attempt(plane.admin, "pods", pod)
    assert allowed.ok, allowed.message


@pytest.mark.parametrize("attack", SERVICE_ATTACKS, ids=lambda attack: attack.name)
def test_a_bad_service_is_refused(plane: Plane, thief: Client, attack: Attack) -> None:
    service = attack.on(good_service())
    _refused_by_policy(attempt(thief, "services", service), "trainmaster-services", attack.refusal)
    allowed = attempt(plane.admin, "services", service)
    assert allowed.ok, allowed.message


@pytest.mark.parametrize("attack", NETWORK_POLICY_ATTACKS, ids=lambda attack: attack.name)
def test_a_bad_network_policy_is_refused(plane: Plane, thief: Client, attack: Attack) -> None:
    policy = attack.on(good_network_policy())
    _refused_by_policy(attempt(thief, "networkpolicies", policy), "trainmaster-networkpolicies", attack.refusal)
    allowed = attempt(plane.admin, "networkpolicies", policy)
    assert allowed.ok, allowed.message


@pytest.mark.parametrize("namespace", DENIED)
def test_nothing_is_made_in_the_clusters_own_namespaces(thief: Client, namespace: str) -> None:
    for resource, good in GOOD.items():
        reply = attempt(thief, resource, good(), namespace)
        _refused_by_policy(reply, f"trainmaster-{resource}", f"no TrainingJob may run in namespace {namespace}")


def test_only_pods_of_jobs_can_be_deleted(plane: Plane, thief: Client) -> None:
    plane.admin.done("POST", f"{TEAM}/pods", {**good_pod(), "metadata": {"name": "somebody-elses"}})
    plane.admin.done("POST", f"{TEAM}/pods", {**good_pod(), "metadata": metadata("digits-worker-0-7")})
    _refused_by_policy(thief.call("DELETE", f"{TEAM}/pods/somebody-elses"), "trainmaster-deletes", "label")
    assert thief.call("DELETE", f"{TEAM}/pods/digits-worker-0-7").ok


@pytest.mark.parametrize(
    ("ttl", "phase", "allowed"),
    [
        (0, "Succeeded", True),
        (60, "Failed", True),
        (None, "Succeeded", False),
        (60, "Running", False),
        (60, None, False),
    ],
)
def test_only_jobs_that_are_over_and_were_to_vanish_can_be_deleted(
    plane: Plane, thief: Client, ttl: int | None, phase: str | None, allowed: bool
) -> None:
    name = f"{phase}-{ttl}".lower()
    spec = {**JOB["spec"], **({} if ttl is None else {"ttlSecondsAfterFinished": ttl})}
    plane.admin.done("POST", JOBS, {**JOB, "metadata": {"name": name}, "spec": spec})
    if phase:
        status = {"status": {"phase": phase}}
        assert thief.call("PATCH", f"{JOBS}/{name}/status", status, "application/merge-patch+json").ok
    reply = thief.call("DELETE", f"{JOBS}/{name}")
    if allowed:
        assert reply.ok, reply.message
    else:
        _refused_by_policy(reply, "trainmaster-deletes", "ttlSecondsAfterFinished")


def test_a_status_write_changes_nothing_but_the_status(plane: Plane, thief: Client) -> None:
    plane.admin.done("POST", JOBS, {**JOB, "metadata": {"name": "mine"}})
    change = {
        "metadata": {"labels": {"a": "b"}, "finalizers": ["x.example/y"], "ownerReferences": [{"uid": "x"}]},
        "spec": {"ttlSecondsAfterFinished": 0},
        "status": {"phase": "Running"},
    }
    thief.call("PATCH", f"{JOBS}/mine/status", change, "application/merge-patch+json")
    job = plane.admin.done("GET", f"{JOBS}/mine")
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert not {"labels", "finalizers", "ownerReferences"} & set(job["metadata"])
