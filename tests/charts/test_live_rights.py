"""What the API server itself says that the operator may do: the list, and nothing besides."""

from dataclasses import replace

import pytest

from .client import Client
from .conftest import Plane
from .test_rights import RIGHTS, rights
from .tools import NAMESPACE

LEASE = {("coordination.k8s.io", "leases", verb) for verb in ("get", "update")}
# (verb, group, resource, subresource): each would let a thief of the token go further.
FORBIDDEN = [
    *((verb, "", "secrets", "") for verb in ("get", "list", "watch", "create", "update", "delete")),
    *(("create", "", "pods", sub) for sub in ("exec", "attach", "portforward", "binding", "eviction", "proxy")),
    *(("get", "", "pods", sub) for sub in ("exec", "attach", "portforward", "log", "proxy")),
    *((verb, "", "pods", "") for verb in ("update", "patch", "deletecollection")),
    *((verb, "", "pods", "ephemeralcontainers") for verb in ("update", "patch")),
    *((verb, "", "nodes", "") for verb in ("get", "list", "watch", "update", "patch")),
    *((verb, "", "nodes", "proxy") for verb in ("get", "create")),
    *((verb, "", "namespaces", "") for verb in ("get", "list", "watch", "create", "delete")),
    *((verb, "", "configmaps", "") for verb in ("get", "list", "create", "update")),
    *((verb, "", "services", "") for verb in ("update", "patch", "delete")),
    *((verb, "", "services", "proxy") for verb in ("get", "create")),
    *((verb, "", "serviceaccounts", "") for verb in ("get", "create", "impersonate")),
    ("create", "", "serviceaccounts", "token"),
    *(("impersonate", "", what, "") for what in ("users", "groups")),
    *((verb, group, "events", "") for verb in ("get", "list", "patch") for group in ("", "events.k8s.io")),
    ("create", "", "events", ""),
    *((verb, "", "persistentvolumes", "") for verb in ("get", "create")),
    *((verb, "", "persistentvolumeclaims", "") for verb in ("get", "create", "delete")),
    *((verb, "trainmaster.dev", "trainingjobs", "") for verb in ("create", "update", "patch", "deletecollection")),
    *((verb, "trainmaster.dev", "trainingjobs", "scale") for verb in ("get", "update", "patch")),
    ("update", "trainmaster.dev", "trainingjobs", "finalizers"),
    *((verb, "apps", kind, "") for verb in ("get", "create", "patch") for kind in ("deployments", "daemonsets")),
    *((verb, "batch", "jobs", "") for verb in ("get", "create")),
    *(
        (verb, "rbac.authorization.k8s.io", kind, "")
        for verb in ("get", "create", "update", "bind", "escalate")
        for kind in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
    ),
    *(
        (verb, "admissionregistration.k8s.io", kind, "")
        for verb in ("get", "create", "update", "delete")
        for kind in ("validatingadmissionpolicies", "validatingwebhookconfigurations", "mutatingwebhookconfigurations")
    ),
    *((verb, "apiextensions.k8s.io", "customresourcedefinitions", "") for verb in ("get", "list", "watch", "update")),
    ("create", "authentication.k8s.io", "tokenreviews", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
    *((verb, "coordination.k8s.io", "leases", "") for verb in ("get", "create", "update")),
    *((verb, "certificates.k8s.io", "certificatesigningrequests", "") for verb in ("create", "approve")),
]


def _told_rights(who: Client, namespace: str) -> set[tuple[str, str, str]]:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    status = who.done("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)["status"]
    assert status["incomplete"] is False
    return rights(status["resourceRules"])


def _may(who: Client, right: tuple[str, str, str, str], namespace: str | None) -> bool:
    verb, group, resource, subresource = right
    wanted = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**wanted, **({"namespace": namespace} if namespace else {})}},
    }
    review = who.done("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool(review["status"]["allowed"])


@pytest.fixture(scope="module")
def operator(plane: Plane) -> Client:
    plane.install()
    for name in ("team-a", "team-b"):
        plane.admin.make_namespace(name)
    return plane.admin.as_service_account(NAMESPACE, "trainmaster")


def test_the_operator_has_the_list_beyond_what_every_service_account_has(plane: Plane, operator: Client) -> None:
    nobody = plane.admin.as_service_account("team-a", "default")
    for namespace in ("team-a", "kube-system"):
        assert _told_rights(operator, namespace) - _told_rights(nobody, namespace) == RIGHTS


@pytest.mark.parametrize("right", FORBIDDEN, ids=" ".join)
def test_the_operator_may_not(operator: Client, right: tuple[str, str, str, str]) -> None:
    assert not _may(operator, right, "team-a")
    assert not _may(operator, right, None)


def test_secrets_are_closed_in_deed_as_well(operator: Client) -> None:
    for path in ("/api/v1/secrets", "/api/v1/namespaces/team-a/secrets", "/api/v1/nodes"):
        assert operator.call("GET", path).status == 403


def test_nobody_gets_in_without_a_token(operator: Client) -> None:
    stranger = replace(operator, token="guessed")
    assert stranger.call("GET", "/apis/trainmaster.dev/v1/trainingjobs").status == 401


def test_of_all_leases_the_operator_may_touch_its_own(operator: Client) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    lease = operator.done("GET", f"{leases}/trainmaster")
    operator.done("PUT", f"{leases}/trainmaster", lease)
    for name in ("another", ""):
        assert operator.call("GET", f"{leases}/{name}".rstrip("/")).status == 403
    assert operator.call("POST", leases, {**lease, "metadata": {"name": "another"}}).status == 403
    assert operator.call("DELETE", f"{leases}/trainmaster").status == 403


def test_namespaced_mode_has_no_right_anywhere_else(plane: Plane, operator: Client) -> None:
    """Last: it turns the release into a namespaced one."""
    plane.install('namespaces=["team-a"]', "crds.install=true")
    nobody = plane.admin.as_service_account("team-a", "default")
    assert _told_rights(operator, "team-a") - _told_rights(nobody, "team-a") == RIGHTS
    for namespace in ("team-b", "kube-system"):
        assert _told_rights(operator, namespace) == _told_rights(nobody, namespace)
    assert _told_rights(operator, NAMESPACE) - _told_rights(nobody, NAMESPACE) == LEASE
    for group, resource, verb in RIGHTS:
        plain, _, subresource = resource.partition("/")
        assert not _may(operator, (verb, group, plain, subresource), None), (verb, resource)
