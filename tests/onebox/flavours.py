"""What a test may ask of any cluster, and the two kinds that are not the one-machine cluster.

`conftest.py` chooses; tests know only `Flavour`. A cluster that is not ours to break skips the tests that would.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tools.onebox.paths import AGENT_IMAGE, OPERATOR_IMAGE, REPOSITORY, STATE, TRAINER_IMAGE
from tools.onebox.shell import run, succeeds


class FlavouredNode(Protocol):
    """A node that can be lost and found."""

    def kill(self) -> None:
        """End everything on it at once."""

    def start(self) -> None:
        """Bring it back."""


class Flavour(Protocol):
    """A cluster, as tests see it."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON document per request."""

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return what it printed."""

    def stop(self, name: str) -> None:
        """Stop a daemon, such as `kube-apiserver`."""

    def start(self, name: str) -> None:
        """Start it again."""

    def node(self, name: str) -> FlavouredNode:
        """Look up a node."""

    def heal(self) -> None:
        """Start whatever a test left stopped."""


@dataclass(frozen=True)
class Existing:
    """Somebody's cluster: used as it is, and never broken."""

    kubeconfig: Path

    @property
    def audit_log(self) -> Path:
        """Out of reach here."""
        pytest.skip("the audit log of an existing cluster is out of reach")

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return what it printed."""
        return run("kubectl", f"--kubeconfig={self.kubeconfig}", *words, stdin=stdin)

    def stop(self, name: str) -> None:
        """Refuse."""
        pytest.skip(f"an existing cluster is not ours to break: {name} stays")

    start = stop

    def node(self, name: str) -> FlavouredNode:
        """Refuse."""
        pytest.skip(f"an existing cluster is not ours to break: {name} stays")

    def heal(self) -> None:
        """Nothing was broken."""


@dataclass(frozen=True)
class KindNode:
    """A node of a kind cluster: a container."""

    container: str

    def kill(self) -> None:
        """End everything on it at once."""
        run("docker", "kill", self.container)

    def start(self) -> None:
        """Bring it back."""
        run("docker", "start", self.container)


@dataclass(frozen=True)
class Kind(Existing):
    """A cluster of containers. Written from kind's documentation and not tried: no Docker engine was at hand."""

    kubeconfig: Path = STATE / "kind" / "kubeconfig"
    name: str = "trainmaster-tests"

    @staticmethod
    def is_possible() -> bool:
        """Say whether a Docker engine answers and has the node image, so that nothing need be fetched."""
        images = ("docker", "images", "--quiet", "kindest/node")
        return succeeds("docker", "info") and bool(run(*images).strip())

    def up(self) -> None:
        """Make the cluster, load the images, install the chart."""
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        configuration = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes: [{role: control-plane}"
        configuration += ", {role: worker}, {role: worker}]\n"
        create = ("kind", "create", "cluster", f"--name={self.name}", f"--kubeconfig={self.kubeconfig}")
        run(*create, "--config=-", "--wait=120s", stdin=configuration)
        for image, folder in ((OPERATOR_IMAGE, "operator"), (TRAINER_IMAGE, "trainer"), (AGENT_IMAGE, "agent")):
            run("docker", "build", f"--file=images/{folder}/Dockerfile", f"--tag={image}", ".", folder=REPOSITORY)
            run("kind", "load", "docker-image", f"--name={self.name}", image)
        run(
            "helm", "upgrade", "--install", "trainmaster", REPOSITORY / "charts" / "trainmaster", "--wait",
            f"--kubeconfig={self.kubeconfig}", "--namespace=trainmaster-system", "--create-namespace",
            f"--set=image.operator={OPERATOR_IMAGE}", f"--set=image.trainer={TRAINER_IMAGE}",
            f"--set=image.agent={AGENT_IMAGE}",
        )  # fmt: skip

    def down(self) -> None:
        """Delete the cluster."""
        run("kind", "delete", "cluster", f"--name={self.name}", f"--kubeconfig={self.kubeconfig}")

    def stop(self, name: str) -> None:
        """Stop a part of the control plane: kubelet follows the manifests in its folder."""
        self._move(f"/etc/kubernetes/manifests/{name}.yaml", "/etc/kubernetes/")

    def start(self, name: str) -> None:
        """Start it again."""
        self._move(f"/etc/kubernetes/{name}.yaml", "/etc/kubernetes/manifests/")

    def node(self, name: str) -> KindNode:
        """Look up a node; kind calls its workers `worker` and `worker2`."""
        return KindNode(f"{self.name}-{ {'node-1': 'worker', 'node-2': 'worker2'}[name] }")

    def heal(self) -> None:
        """Start whatever a test left stopped."""
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"):
            if self._has(f"/etc/kubernetes/{name}.yaml"):
                self.start(name)
        for node in ("node-1", "node-2"):
            self.node(node).start()

    def _move(self, source: str, target: str) -> None:
        run("docker", "exec", f"{self.name}-control-plane", "mv", source, target)

    def _has(self, file: str) -> bool:
        return succeeds("docker", "exec", f"{self.name}-control-plane", "test", "-e", file)
