"""The operator's rights are exactly this list, in both modes; namespaced mode has nothing cluster-wide."""

from .tools import NAMESPACE, Object, of_kind, render, the

# (API group, resource, verb): every right of the operator. docs/security.md refers to this list.
RIGHTS = {
    *(("trainmaster.dev", "trainingjobs", verb) for verb in ("get", "list", "watch", "delete")),
    ("trainmaster.dev", "trainingjobs/status", "patch"),
    *(("", "pods", verb) for verb in ("get", "list", "watch", "create", "delete")),
    *(("", "services", verb) for verb in ("get", "list", "watch", "create")),
    ("events.k8s.io", "events", "create"),
}
# What is added where each job gets a NetworkPolicy.
ISOLATING = {("networking.k8s.io", "networkpolicies", verb) for verb in ("get", "create")}
CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def rights(rules: list[Object]) -> set[tuple[str, str, str]]:
    """RBAC rules, multiplied out."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_cluster_mode_grants_the_list_and_no_more() -> None:
    objects = render()
    binding = the(objects, "ClusterRoleBinding")
    (role,) = [one for one in of_kind(objects, "ClusterRole") if one["metadata"]["name"] == binding["roleRef"]["name"]]
    assert rights(role["rules"]) == RIGHTS
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "trainmaster", "namespace": NAMESPACE}]
    assert [one["metadata"]["name"] for one in of_kind(objects, "Role")] == ["trainmaster-lease"]


def test_a_network_policy_for_each_job_takes_two_rights_more() -> None:
    for values in ([], ['namespaces=["a"]']):
        objects = render(*values, "jobNetworkPolicy.enabled=true")
        (role,) = [one for one in objects if one["kind"] in ("Role", "ClusterRole") and _is_the_operators(one)]
        assert rights(role["rules"]) == RIGHTS | ISOLATING
        (container,) = the(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert {"name": "TRAINMASTER_JOB_NETWORK_POLICY", "value": "true"} in container["env"]


def _is_the_operators(role: Object) -> bool:
    return bool(role["metadata"]["name"] == "trainmaster")


def test_the_lease_is_the_only_one_that_may_be_touched() -> None:
    for values in ([], ['namespaces=["a","b"]'], ["scope=Namespaced"]):
        objects = render(*values)
        (role,) = [one for one in of_kind(objects, "Role") if one["metadata"]["name"] == "trainmaster-lease"]
        (binding,) = [one for one in of_kind(objects, "RoleBinding") if one["metadata"]["name"] == "trainmaster-lease"]
        lease = the(objects, "Lease")
        assert role["rules"] == [
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": [lease["metadata"]["name"]],
                "verbs": ["get", "update"],
            }
        ]
        assert {one["metadata"]["namespace"] for one in (role, binding, lease)} == {NAMESPACE}
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "trainmaster", "namespace": NAMESPACE}]
        assert "spec" not in lease, "an upgrade must not take the lease away from its holder"


def test_namespaced_mode_grants_the_same_list_there_and_nothing_elsewhere() -> None:
    objects = render('namespaces=["a","b"]')
    assert {one["kind"] for one in objects} & CLUSTER_SCOPED == set()
    assert {one["metadata"]["namespace"]: rights(one["rules"]) for one in _of_jobs(objects, "Role")} == {
        "a": RIGHTS,
        "b": RIGHTS,
    }
    for binding in _of_jobs(objects, "RoleBinding"):
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": "trainmaster",
        }
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "trainmaster", "namespace": NAMESPACE}]
    assert len(_of_jobs(objects, "RoleBinding")) == 2


def _of_jobs(objects: list[Object], kind: str) -> list[Object]:
    """Without the one for the lease."""
    return [one for one in of_kind(objects, kind) if one["metadata"]["name"] == "trainmaster"]


def test_scope_namespaced_means_the_own_namespace() -> None:
    objects = render("scope=Namespaced", namespace="team-a")
    assert [one["metadata"]["namespace"] for one in _of_jobs(objects, "Role")] == ["team-a"]


def test_namespaced_mode_installs_what_is_cluster_scoped_only_when_asked() -> None:
    asked = render("scope=Namespaced", "crds.install=true", "admissionPolicy.enabled=true", namespace="team-a")
    names = {one["metadata"]["name"] for one in asked if one["kind"] in CLUSTER_SCOPED}
    policies = {f"trainmaster-team-a-{what}" for what in ("pods", "services", "deletes")}
    assert names == {"trainingjobs.trainmaster.dev", *policies}


def test_there_is_no_wildcard_anywhere() -> None:
    for values in ([], ['namespaces=["a"]']):
        for role in (one for one in render(*values) if one["kind"] in ("Role", "ClusterRole")):
            assert all("*" not in part for right in rights(role["rules"]) for part in right)
            assert all(set(rule) - {"resourceNames"} == {"apiGroups", "resources", "verbs"} for rule in role["rules"])


def test_users_get_trainingjobs_through_the_roles_that_they_have() -> None:
    roles = {one["metadata"]["name"]: one for one in of_kind(render(), "ClusterRole")}
    edit, view = roles["trainmaster-edit"], roles["trainmaster-view"]
    aggregate = "rbac.authorization.k8s.io/aggregate-to-"
    assert {f"{aggregate}admin", f"{aggregate}edit"} <= set(edit["metadata"]["labels"])
    assert f"{aggregate}view" in view["metadata"]["labels"]
    assert {verb for _, _, verb in rights(view["rules"])} == {"get", "list", "watch"}
    assert {group for _, rules in roles.items() for group, _, _ in rights(rules["rules"])} >= {"trainmaster.dev"}
    assert ("trainmaster.dev", "trainingjobs/status", "patch") not in rights(edit["rules"])
    assert set(roles) == {"trainmaster", "trainmaster-edit", "trainmaster-view"}
    assert "trainmaster-edit" not in {one["metadata"]["name"] for one in render("userRoles.install=false")}
