"""The API server as the judge of TrainingJobs: creates that leave nothing behind, and what was said to them.

Used by the test_crd_*.py files beside it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kubernetes import client, config
from trainmaster.api.generate import ROOT
from trainmaster.api.schema import crd
from trainmaster.wire import names

CRD_NAME = f"{names.PLURAL}.{names.GROUP}"


class Cluster(Protocol):
    """What these tests need of the cluster fixture."""

    @property
    def kubeconfig(self) -> Path:
        """For clients."""

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl and give what it printed."""


@dataclass(frozen=True)
class Answer:
    """`job` as the API server would store it, or the `refusal`."""

    job: dict[str, Any]
    refusal: str

    @property
    def accepted(self) -> bool:
        """Whether it would be stored."""
        return not self.refusal


@contextlib.contextmanager
def crd_server(cluster: Cluster) -> Iterator[CrdServer]:
    """The server with a namespace of its own. No pod can start there, should an operator watch."""
    server = CrdServer(cluster, f"crd-{secrets.token_hex(4)}")
    cluster.kubectl("create", "namespace", server.namespace)
    try:
        server.kubectl("create", "quota", "no-pods", "--hard=pods=0")
        yield server
    finally:
        cluster.kubectl("delete", "namespace", server.namespace, "--wait=false")


class CrdServer:
    """An API server that has our CRD."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._install()
        connection = config.new_client_from_config(str(cluster.kubeconfig))  # type: ignore[no-untyped-call]
        self._api = client.CustomObjectsApi(connection)

    def _install(self) -> None:
        """Bring the CRD of this checkout, unless the chart has brought the very same."""
        found = self.cluster.kubectl("get", "crd", CRD_NAME, "--ignore-not-found", "--output=json").strip()
        if not found or _schema(json.loads(found)) != _schema(crd()):
            path = ROOT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"
            self.cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={path}")
        self.cluster.kubectl("wait", "--for=condition=Established", "--timeout=200s", f"crd/{CRD_NAME}")

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace of this test."""
        return self.cluster.kubectl(f"--namespace={self.namespace}", *words, stdin=stdin)

    def would_create(self, job: dict[str, Any]) -> Answer:
        """A dry run, as strict about unknown fields as kubectl."""
        return self._ask(
            self._api.create_namespaced_custom_object,
            *(names.GROUP, names.VERSION, self.namespace, names.PLURAL, job),
            dry_run="All",
            field_validation="Strict",
        )

    def would_change(self, name: str, patch: dict[str, Any]) -> Answer:
        """A dry run of a merge patch to a job in the namespace of this test."""
        return self._ask(
            self._api.patch_namespaced_custom_object,
            *(names.GROUP, names.VERSION, self.namespace, names.PLURAL, name, patch),
            dry_run="All",
            field_validation="Strict",
        )

    @staticmethod
    def _ask(call: Any, *words: Any, **options: Any) -> Answer:
        try:
            return Answer(call(*words, **options), "")
        except client.ApiException as error:
            return Answer({}, json.loads(error.body or "{}")["message"])


def _schema(definition: dict[str, Any]) -> Any:
    return definition["spec"]["versions"][0]["schema"]
