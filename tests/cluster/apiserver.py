"""A private etcd and kube-apiserver on free loopback ports, which tests may stop, kill and start again.

No kubelet, scheduler or controllers: pods stay as they are until a test writes their status. Every request is in the
audit log, so tests can count what the operator asked for.
"""

import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.ports import free_port
from tools.onebox import binaries
from tools.onebox.processes import SELDOM_COLLECTING

Document = dict[str, Any]

START_SECONDS = 120.0
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class Reply:
    """The API server's answer."""

    status: int
    body: Document


class RefusedRequestError(AssertionError):
    """The API server said no where a test had counted on yes."""


class ApiServer:
    """etcd and API server, as their administrator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_urlsafe(24)
        self._etcd_port, self._peer_port, self.port = free_port(), free_port(), free_port()
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._prepare()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Both, and wait until it is ready."""
        self._etcd = self._start("etcd", self._etcd_arguments())
        self.start_server()

    def start_server(self) -> None:
        """The API server alone; etcd has kept everything."""
        self._server = self._start("kube-apiserver", self._server_arguments())
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if time.monotonic() > deadline or self._server.poll() is not None:
                raise RuntimeError((self.folder / "kube-apiserver.log").read_text()[-3000:])
            time.sleep(0.1)  # a server that is only just starting tells nobody when it is ready

    def stop_server(self) -> None:
        """At once, as a lost control plane is."""
        _end(self._server, kill=True)
        self._server = None

    def stop(self) -> None:
        """Both."""
        _end(self._server, kill=True)
        _end(self._etcd, kill=True)

    def try_call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Reply:
        """One request and whatever comes back."""
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", content_type)
        data = None if body is None else json.dumps(body).encode()
        trust = ssl.create_default_context(cafile=str(self.certificate))
        try:
            with urllib.request.urlopen(request, data, timeout=100, context=trust) as response:  # noqa: S310
                return Reply(response.status, _parse(response.read()))
        except urllib.error.HTTPError as error:
            return Reply(error.code, _parse(error.read()))

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Document:
        """One request that must go well."""
        reply = self.try_call(method, path, body, content_type)
        if reply.status >= 400:
            raise RefusedRequestError(f"{method} {path}: {reply.status} {reply.body.get('message')}")
        return reply.body

    def await_served(self, path: str) -> None:
        """A new kind is there a moment after its CRD."""
        deadline = time.monotonic() + START_SECONDS
        while self.try_call("GET", path).status != 200:
            assert time.monotonic() < deadline, f"{path} is not served"
            time.sleep(0.05)  # discovery has no watch

    def await_verdict(self, path: str, body: Document, *, accepted: bool) -> None:
        """A changed CRD counts a moment after it was changed."""
        deadline = time.monotonic() + START_SECONDS
        while ((reply := self.try_call("POST", f"{path}?dryRun=All", body)).status < 400) != accepted:
            assert time.monotonic() < deadline, reply
            time.sleep(0.1)  # nothing tells when the API server goes by it

    def kubeconfig(self, path: Path, token: str | None = None) -> Path:
        """For a client with this token; the administrator's otherwise."""
        named = {"cluster": "private", "user": "user"}
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "private",
            "contexts": [{"name": "private", "context": named}],
            "clusters": [{"name": "private", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token or self.token}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    @property
    def certificate(self) -> Path:
        """Signed by itself, so it is its own authority."""
        return self.folder / "certificates" / "apiserver.crt"

    def audit(self, namespace: str, agent: str = "trainmaster") -> Counter[str]:
        """What a client asked for in a namespace: "verb resource" to how often."""
        return Counter(
            f"{event['verb']} {event['objectRef']['resource']}{_sub(event['objectRef'])}"
            for event in self.requests(agent)
            if event.get("objectRef", {}).get("namespace") == namespace
        )

    def requests(self, agent: str) -> list[Document]:
        """Every request of a client, by the beginning of its user agent, as the audit log has it."""
        lines = (
            (self.folder / "audit.log").read_bytes().rpartition(b"\n")[0].splitlines()
        )  # the last may be half a line
        events = (json.loads(line) for line in lines)
        ended = (event for event in events if event["stage"] == "ResponseComplete")
        return [event for event in ended if event.get("userAgent", "").startswith(agent)]

    def _ready(self) -> bool:
        """It says so, and does not put off those who ask for jobs (429, "storage is (re)initializing")."""
        try:
            jobs = self.try_call("GET", "/apis/trainmaster.dev/v1/trainingjobs").status
            return self.try_call("GET", "/readyz").status == 200 and jobs != 429
        except OSError:
            return False

    def _prepare(self) -> None:
        key = self.folder / "service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f"{self.token},administrator,administrator,system:masters\n")
        tokens.chmod(0o600)
        (self.folder / "audit-policy.yaml").write_text(json.dumps(AUDIT_POLICY))

    def _start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            command, env = [str(binaries.path(name)), *arguments], {**os.environ, **SELDOM_COLLECTING}
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=env)

    def _etcd_arguments(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _server_arguments(self) -> list[str]:
        key = self.folder / "service-account.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={self.folder / 'audit-policy.yaml'}",
            f"--audit-log-path={self.folder / 'audit.log'}",
        ]


def _parse(content: bytes) -> Document:
    """Objects are JSON; /readyz and unknown paths answer in words."""
    try:
        plain = json.loads(content)
    except ValueError:
        plain = None
    return plain if isinstance(plain, dict) else {"message": content.decode(errors="replace")}


def _sub(reference: Document) -> str:
    return f"/{reference['subresource']}" if "subresource" in reference else ""


def _end(process: subprocess.Popen[bytes] | None, *, kill: bool) -> None:
    if process is not None and process.poll() is None:
        process.kill() if kill else process.terminate()
        process.wait(100)
