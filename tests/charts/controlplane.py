"""A private control plane for the tests of the chart: a real etcd and a real kube-apiserver on free loopback ports.

No scheduler, controllers or kubelet: enough for admission, authorization and Helm. The binaries come from the cache
that `make cluster-up` fills.
"""

import pathlib
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .client import Client, UnreachableError
from .tools import binary

START_SECONDS = 120.0


@contextmanager
def control_plane(folder: pathlib.Path) -> Iterator[Client]:
    """Start etcd and an API server in `folder`, and stop both at the end, by the processes that were started."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        etcd_port, peer_port, port = free_ports(3)
        started.append(_start_etcd(folder, etcd_port, peer_port))
        token = secrets.token_urlsafe(24)
        started.append(_start_apiserver(folder, port, etcd_port, token))
        client = Client(f"https://127.0.0.1:{port}", folder / "certificates" / "apiserver.crt", token)
        _await_ready(client, started, folder)
        yield client
    finally:
        for process in reversed(started):
            process.terminate()
            _wait_or_kill(process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody uses now."""
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
        "--allow-privileged=true",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={key}",
        f"--service-account-key-file={key}",
        "--endpoint-reconciler-type=none",
    ]
    return _start(folder, "kube-apiserver", arguments)


def _await_ready(client: Client, started: Sequence[subprocess.Popen[bytes]], folder: pathlib.Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _ready(client):
        if time.monotonic() > deadline or any(process.poll() is not None for process in started):
            logs = "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("*.log")))
            raise RuntimeError(f"the private control plane did not start:\n{logs}")
        time.sleep(0.1)  # a server that is only just starting tells nobody when it is ready


def _ready(client: Client) -> bool:
    try:
        return client.call("GET", "/readyz").ok
    except UnreachableError:
        return False
