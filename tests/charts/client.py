"""A bare client of an API server: a call is a verb, a path and a body, and the answer is looked at as it is.

Bare, because the tests play attackers with stolen tokens and want the server's own refusals.
"""

import json
import pathlib
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, replace

import yaml

from .tools import Object


class UnreachableError(Exception):
    """No answer at all."""


@dataclass(frozen=True)
class Reply:
    """The server's answer."""

    status: int
    body: Object

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.status < 300

    @property
    def message(self) -> str:
        """Why it was not done."""
        return str(self.body.get("message", self.body))


@dataclass(frozen=True)
class Client:
    """Somebody who talks to an API server."""

    url: str
    ca_file: pathlib.Path
    token: str

    def call(self, method: str, path: str, body: Object | None = None, content: str = "application/json") -> Reply:
        """One request.

        Raises:
            UnreachableError: no answer.
        """
        request = urllib.request.Request(  # noqa: S310 our own loopback server
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content},
        )
        try:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            with urllib.request.urlopen(request, timeout=30, context=context) as reply:  # noqa: S310
                return Reply(reply.status, _read(reply.read()))
        except urllib.error.HTTPError as refusal:
            return Reply(refusal.code, _read(refusal.read()))
        except OSError as error:
            raise UnreachableError(str(error)) from error

    def done(self, method: str, path: str, body: Object | None = None) -> Object:
        """One request that must succeed."""
        reply = self.call(method, path, body)
        assert reply.ok, reply.message
        return reply.body

    def as_service_account(self, namespace: str, name: str) -> "Client":
        """The same server, met with a fresh token of this service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        reply = self.done("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        return replace(self, token=reply["status"]["token"])

    def make_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """A namespace with its default service account, which no controller makes here."""
        metadata = {"name": name, "labels": labels or {}}
        self.done("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.make_service_account(name, "default")

    def make_service_account(self, namespace: str, name: str) -> None:
        """A service account without any right."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        self.done("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)

    def kubeconfig(self, path: pathlib.Path) -> pathlib.Path:
        """Write this identity down for other programs."""
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "private", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": self.token}}],
            "contexts": [{"name": "private", "context": {"cluster": "private", "user": "user"}}],
            "current-context": "private",
        }
        path.write_text(yaml.safe_dump(content))
        path.chmod(0o600)
        return path


def _read(content: bytes) -> Object:
    try:
        value = json.loads(content)
    except ValueError:
        return {"message": content.decode(errors="replace")}
    return value if isinstance(value, dict) else {"message": value}
