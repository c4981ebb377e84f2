"""Install, upgrade, uninstall, by the real Helm on a real API server: the CRD is upgraded, and never deleted."""

import pathlib
import shutil

import pytest

from .conftest import Plane
from .tools import CHART, NAMESPACE, Object

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.trainmaster.dev"
JOBS = "/apis/trainmaster.dev/v1/namespaces/team-a/trainingjobs"
JOB: Object = {
    "apiVersion": "trainmaster.dev/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "strategy": {"type": "AllReduce"},
        "training": {"task": "trainmaster_trainer.tasks.digits:Digits", "steps": 5, "globalBatchSize": 8},
    },
}


def _columns(plane: Plane) -> list[str]:
    crd = plane.admin.done("GET", CRD)
    return [column["name"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The chart as a later version has it: the CRD has one column more."""
    chart = tmp_path_factory.mktemp("newer") / "trainmaster"
    shutil.copytree(CHART, chart)
    path = chart / "templates" / "crd.yaml"
    columns = "    additionalPrinterColumns:\n"
    more = f"{columns}    - name: NEWER\n      type: string\n      jsonPath: .spec.strategy.type\n"
    text = path.read_text()
    assert columns in text
    path.write_text(text.replace(columns, more))
    return chart


def test_the_life_of_a_release(plane: Plane, newer: pathlib.Path) -> None:
    """One story, in order: each step stands on the one before."""
    plane.install()
    plane.admin.make_namespace("team-a")
    plane.admin.done("POST", JOBS, JOB)
    assert "NEWER" not in _columns(plane)

    plane.install(chart=newer)
    assert "NEWER" in _columns(plane), "helm upgrade must upgrade the CRD"

    plane.uninstall()
    assert "NEWER" in _columns(plane), "helm uninstall must keep the CRD"
    assert plane.admin.done("GET", f"{JOBS}/digits")["spec"]["training"]["steps"] == 5
    assert plane.admin.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/trainmaster").status == 404
    assert plane.admin.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/trainmaster").status == 404

    plane.install()
    assert "NEWER" not in _columns(plane), "a new release takes over the CRD that was kept"
    assert plane.admin.done("GET", f"{JOBS}/digits")["metadata"]["name"] == "digits"


def test_namespaced_mode_installs_with_rights_in_that_namespace_only(plane: Plane) -> None:
    """An installer who is admin of one namespace, and nobody elsewhere, can install it there."""
    plane.admin.make_namespace("team-b")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "team-b"}],
    }
    plane.admin.done("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/team-b/rolebindings", binding)
    owner = plane.admin.as_service_account("team-b", "default")
    limited = Plane(owner, owner.kubeconfig(plane.kubeconfig.with_name("team-b.kubeconfig")))
    said = limited.install("scope=Namespaced", namespace="team-b", create_namespace=False)
    assert "The CRD is not part of this release" in said
    assert "not fenced by an admission policy" in said
    assert plane.admin.done("GET", "/apis/apps/v1/namespaces/team-b/deployments/trainmaster")["spec"]["replicas"] == 2


def test_the_operators_pod_passes_the_restricted_pod_security_standard(plane: Plane) -> None:
    plane.admin.make_namespace("strict", {"pod-security.kubernetes.io/enforce": "restricted"})
    plane.install('podAnnotations={"a":"b"}', namespace="trainmaster-system")
    deployment = plane.admin.done("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/trainmaster")
    plane.admin.make_service_account("strict", "trainmaster")
    template = deployment["spec"]["template"]
    template["metadata"]["name"] = "operator"
    pod: Object = {"apiVersion": "v1", "kind": "Pod", **template}
    path = "/api/v1/namespaces/strict/pods?dryRun=All"
    plane.admin.done("POST", path, pod)
    del pod["spec"]["containers"][0]["securityContext"]
    refused = plane.admin.call("POST", path, pod)
    assert refused.status == 403
    assert "violates PodSecurity" in refused.message
