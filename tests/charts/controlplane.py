"""A private control plane for the tests of the chart: a real etcd and a real kube-apiserver on free loopback ports.

No scheduler, controllers or kubelet: enough for admission, authorization and Helm. Binaries come from the cache that
`make cluster-tools` fills.
"""

import json
import os
import pathlib
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import yaml

CACHE = pathlib.Path(os.environ.get("TRAINMASTER_CACHE", pathlib.Path.home() / ".cache" / "trainmaster"))
START_SECONDS = 90.0


def binary(name: str) -> pathlib.Path | None:
    """The newest cached build of a program, or None."""
    found = sorted(CACHE.glob(f"*/{name}"))
    return found[-1] if found else None


@dataclass(frozen=True)
class ControlPlane:
    """A running API server: where it is, and an administrator's way in."""

    url: str
    kubeconfig: pathlib.Path
    ca_file: pathlib.Path
    admin_token: str

    def kubectl(
        self, *arguments: str, stdin: object = None, token: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; `stdin` is an object to hand over as JSON, `token` another identity. Never raises."""
        identity = ["--token", token, "--kubeconfig", str(self._anonymous())] if token else []
        return _run(["kubectl", *identity, *arguments], self.kubeconfig, stdin)

    def helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run helm as the administrator. Never raises."""
        return _run([str(binary("helm")), *arguments], self.kubeconfig)

    def _anonymous(self) -> pathlib.Path:
        """A kubeconfig without an identity: kubectl prefers a kubeconfig's own token to the flag."""
        path = self.kubeconfig.with_name("anonymous.kubeconfig")
        if not path.exists():
            path.write_text(_kubeconfig(self.url, self.ca_file, None))
        return path


def _run(command: Sequence[str], kubeconfig: pathlib.Path, stdin: object = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HELM_CACHE_HOME": str(kubeconfig.parent / "helm")}
    text = None if stdin is None else json.dumps(stdin)
    return subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, check=False, timeout=120
    )


@contextmanager
def control_plane(folder: pathlib.Path) -> Iterator[ControlPlane]:
    """Start etcd and an API server in `folder`, and stop both at the end, by the processes that were started."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        etcd_port, peer_port, port = _free_ports(3)
        started.append(_start_etcd(folder, etcd_port, peer_port))
        token = secrets.token_urlsafe(24)
        started.append(_start_apiserver(folder, port, etcd_port, token))
        plane = _describe(folder, f"https://127.0.0.1:{port}", token)
        _await_ready(plane, started, folder)
        yield plane
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            _wait_or_kill(process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _start(folder: pathlib.Path, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([str(binary(name)), *arguments], stdout=log, stderr=log, cwd=folder)


def _start_etcd(folder: pathlib.Path, port: int, peer_port: int) -> subprocess.Popen[bytes]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    arguments = ["--unsafe-no-fsync", f"--data-dir={folder / 'etcd'}", "--log-level=warn"]
    arguments += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    arguments += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
    return _start(folder, "etcd", [*arguments, f"--initial-cluster=default={peer}"])


def _start_apiserver(folder: pathlib.Path, port: int, etcd_port: int, token: str) -> subprocess.Popen[bytes]:
    key = folder / "service-account.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens = folder / "tokens.csv"
    tokens.write_text(f"{token},administrator,administrator,system:masters\n")
    tokens.chmod(0o600)
    arguments = [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={key}",
        f"--service-account-key-file={key}",
        "--endpoint-reconciler-type=none",
    ]
    return _start(folder, "kube-apiserver", arguments)


def _describe(folder: pathlib.Path, url: str, token: str) -> ControlPlane:
    ca_file = folder / "certificates" / "apiserver.crt"
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(_kubeconfig(url, ca_file, token))
    kubeconfig.chmod(0o600)
    return ControlPlane(url, kubeconfig, ca_file, token)


def _kubeconfig(url: str, ca_file: pathlib.Path, token: str | None) -> str:
    cluster = {"server": url, "certificate-authority": str(ca_file)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "private", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "private", "context": {"cluster": "private", "user": "user"}}],
            "current-context": "private",
        }
    )


def _await_ready(plane: ControlPlane, started: Sequence[subprocess.Popen[bytes]], folder: pathlib.Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _ready(plane):
        for process in started:
            if process.poll() is not None or time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("*.log")))
                raise RuntimeError(f"the private control plane did not start:\n{logs}")
        time.sleep(0.1)  # an API server that is starting has nothing to wait on but itself


def _ready(plane: ControlPlane) -> bool:
    if not plane.ca_file.exists():
        return False
    try:
        context = ssl.create_default_context(cafile=str(plane.ca_file))
        request = urllib.request.Request(  # noqa: S310 our own loopback server
            f"{plane.url}/readyz", headers={"Authorization": f"Bearer {plane.admin_token}"}
        )
        with urllib.request.urlopen(request, timeout=5, context=context) as reply:  # noqa: S310
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
