"""Fixtures of the Kubernetes platform: a private API server, the operator as a process, a namespace per test."""

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from trainmaster.cli.main import main

from tools.onebox import binaries

from .apiserver import ApiServer
from .commanding import Jobs, Run
from .lab import Lab
from .operator_process import OperatorProcess

CRD = Path(__file__).parents[2] / "crds" / "trainmaster.dev_trainingjobs.yaml"
SYSTEM = "trainmaster-system"

# Everything that the operator may do: its tests run without a right more.
RULES = [
    {"apiGroups": ["trainmaster.dev"], "resources": ["trainingjobs"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": ["trainmaster.dev"], "resources": ["trainingjobs/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "create"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A private API server with the CRD and the operator's rights in it."""
    binaries.ensure()
    server = ApiServer(tmp_path_factory.mktemp("apiserver"))
    try:
        server.start()
        _install(server)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def process(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """The operator, with its own service account's token and rights."""
    folder = tmp_path_factory.mktemp("operator")
    process = OperatorProcess(folder, server.kubeconfig(folder / "kubeconfig", operator_token(server)))
    yield process
    process.stop()


@pytest.fixture
def operator(process: OperatorProcess) -> OperatorProcess:
    """Running and ready, whatever the test before did to it."""
    process.ensure()
    return process


@pytest.fixture
def lab(server: ApiServer, operator: OperatorProcess) -> Lab:
    """A namespace for this test."""
    return Lab(server, operator, f"lab-{next(_numbers)}")


@pytest.fixture
def bound(server: ApiServer, process: OperatorProcess, tmp_path: Path) -> Iterator[Lab]:
    """A namespace with an operator of its own, which has rights nowhere else."""
    process.stop()  # it would serve this namespace too
    namespace, account = f"bound-{next(_numbers)}", f"bound-{next(_numbers)}"
    server.call("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": account}})
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig", operator_token(server, account))
    own = OperatorProcess(tmp_path, kubeconfig, namespace)
    lab = Lab(server, own, namespace)
    grant(server, account, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}", "Role")
    own.ensure()
    yield lab
    own.stop()


@pytest.fixture
def jobs(server: ApiServer, process: OperatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """A namespace whose jobs nobody looks after: the operator of other tests is stopped."""
    process.stop()
    namespace = f"commands-{uuid.uuid4().hex[:6]}"
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    path = server.kubeconfig(tmp_path / "kubeconfig")
    content = yaml.safe_load(path.read_text())
    content["contexts"][0]["context"]["namespace"] = namespace
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.chdir(tmp_path)
    return Jobs(server, namespace)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command: exit code and output."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def operator_token(server: ApiServer, account: str = "trainmaster") -> str:
    """For the operator's service account."""
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token"
    return str(server.call("POST", path, {"spec": {"expirationSeconds": 36000}})["status"]["token"])


def _install(server: ApiServer) -> None:
    crd = yaml.safe_load(CRD.read_text())
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    server.call("POST", path, crd)
    server.await_served("/apis/trainmaster.dev/v1/trainingjobs")
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    server.call("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": "trainmaster"}})
    grant(server, "trainmaster", "/apis/rbac.authorization.k8s.io/v1", "ClusterRole")


def grant(server: ApiServer, account: str, path: str, kind: str, rules: list[dict[str, list[str]]] = RULES) -> None:
    """What the operator may do, everywhere or in one namespace."""
    server.call("POST", f"{path}/{kind.lower()}s", {"metadata": {"name": account}, "rules": rules})
    binding = {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}],
    }
    server.call("POST", f"{path}/{kind.lower()}bindings", binding)
