"""How the operator finds the API server and says who it is."""

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml
from trainmaster.cluster import api_connection
from trainmaster.cluster.api_connection import ApiConnection, login


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither in a pod, nor with a kubeconfig."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def in_a_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(api_connection, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def kubeconfig(folder: Path, monkeypatch: pytest.MonkeyPatch, **user: Any) -> None:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://somewhere:6443/"}}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))


def test_in_a_pod_by_address_and_token(in_a_pod: Path) -> None:
    found = ApiConnection()
    assert found.server == "https://10.96.0.1:443"
    assert found.headers() == {"Authorization": "Bearer first"}


def test_in_a_pod_with_ipv6(in_a_pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert ApiConnection().server == "https://[fd00::1]:443"


def test_a_token_that_the_kubelet_replaced(in_a_pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ApiConnection()
    (in_a_pod / "token").write_text("second")
    assert found.headers() == {"Authorization": "Bearer first"}, "not at every request"
    monkeypatch.setattr(api_connection, "TOKEN_SECONDS", -1.0)
    assert found.headers() == {"Authorization": "Bearer second"}


def test_a_token_that_cannot_be_read_again_is_kept(in_a_pod: Path) -> None:
    found = ApiConnection()
    (in_a_pod / "token").unlink()
    found.refresh()
    assert found.headers() == {"Authorization": "Bearer first"}


def test_a_kubeconfig_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig(tmp_path, monkeypatch, token="t")
    found = ApiConnection()
    assert (found.server, found.headers()) == ("https://somewhere:6443", {"Authorization": "Bearer t"})


def test_a_kubeconfig_with_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
    kubeconfig(tmp_path, monkeypatch, **{"client-certificate-data": data, "client-key-data": data})
    assert login().certificate_data == data


def test_a_kubeconfig_with_a_program_to_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As cloud providers have it; the official client runs the program."""
    answer = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}'
    version = "client.authentication.k8s.io/v1"
    program = {"command": "echo", "args": [answer], "apiVersion": version, "interactiveMode": "Never"}
    kubeconfig(tmp_path, monkeypatch, exec=program)
    # A process of its own: the official client reads KUBECONFIG when it is imported.
    script = "from trainmaster.cluster.api_connection import ApiConnection; print(ApiConnection().headers())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout.strip() == "{'Authorization': 'Bearer made'}"


@pytest.mark.parametrize("content", ["", "[]", "text", "{", "current-context: x", "contexts: 3\ncurrent-context: x"])
def test_a_broken_kubeconfig_is_said_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (tmp_path / "kubeconfig").write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with pytest.raises(kopf.LoginError):
        ApiConnection()


def test_nothing_at_all() -> None:
    with pytest.raises(kopf.LoginError, match="KUBECONFIG"):
        ApiConnection()
