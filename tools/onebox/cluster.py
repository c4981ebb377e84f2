"""The one-machine cluster as a thing to bring up, take down, and break: what the command line and the tests use.

    cluster = Cluster()
    cluster.up()
    cluster.kubectl("get", "nodes")
    cluster.stop("kube-apiserver"); cluster.start("kube-apiserver")
    cluster.node("node-2").kill(); cluster.node("node-2").start()
    cluster.down()

All its memory is in files, so any process may manage a cluster that another one started.
"""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.onebox import (
    binaries,
    cgroups,
    chart,
    controlplane,
    images,
    network,
    node,
    packages,
    processes,
    store,
    volumes,
)
from tools.onebox.paths import (
    ALL_NODES,
    AUDIT_LOG,
    CACHE,
    KUBECONFIG,
    NODE_NAMES,
    OPERATOR_IMAGE,
    OWNER,
    STATE,
    containerd_socket,
)
from tools.onebox.remains import clean, leftovers
from tools.onebox.shell import OneboxError, lock, run, step

LOOK_SECONDS = 0.5
"""Between two looks by kubectl, each of which takes a tenth of a second of the processor."""


@dataclass(frozen=True)
class Node:
    """One node, to be lost and found."""

    name: str

    def kill(self) -> None:
        """Cut its power: kubelet, containerd and every pod end at once."""
        node.kill(self.name)

    def start(self) -> None:
        """Switch it on again, with the disk that it had."""
        node.start(self.name)

    def stop(self) -> None:
        """Stop kubelet and containerd alone: the cluster loses sight of the node, its pods run on."""
        for daemon in reversed(node.daemons(self.name)):
            processes.stop(daemon.name)

    def take_in(self, name: str, archive: Path) -> None:
        """Give it the image of an OCI archive, under a name and its digest."""
        store.take_in(containerd_socket(self.name), name, archive)

    def remove(self) -> None:
        """Take it out of the cluster for good."""
        node.remove(self.name)
        Cluster().kubectl("delete", "node", self.name, "--ignore-not-found")

    def is_ready(self) -> bool:
        """Say what the API server believes of it."""
        answer = Cluster().kubectl("get", "node", self.name, "--ignore-not-found", "--output=json")
        conditions = json.loads(answer)["status"].get("conditions", []) if answer else []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@dataclass(frozen=True)
class Cluster:
    """The machine's one cluster; making this object starts nothing."""

    kubeconfig: Path = KUBECONFIG
    audit_log: Path = AUDIT_LOG

    def up(self) -> None:
        """Go from nothing to a cluster with our images and, when the chart exists, our operator."""
        _require_root()
        _require_ours()
        binaries.ensure()
        self.load_images()
        with step("Starting the cluster"):
            self.start_all()
        self._refresh()
        chart.install(self.kubectl)

    def load_images(self) -> None:
        """Build the images and put them where nodes take them from; a cluster that is up changes to them at once."""
        _require_root()
        packages.ensure()
        images.build()
        store.fill()
        if self.is_up():
            self._refresh()

    def load_framework(self, family: str) -> str:
        """Build the image of a family of frameworks and give it to the nodes that run; return its name."""
        image = images.build_framework(family)
        for name in NODE_NAMES:
            node.refresh(name, image)
        return image

    def start_all(self) -> None:
        """Start whatever does not run; leftovers of a crash or a reboot are cleaned away before."""
        with _machine():
            if not any(processes.alive(name) for name in processes.names()):
                self._clean()
            OWNER.write_text(str(STATE))
            network.up()
            controlplane.start()
            for name in NODE_NAMES:
                node.start(name)
            processes.wait(self._is_ready, "both nodes are ready", 180, LOOK_SECONDS)
            volumes.provide(self.kubectl)

    def down(self) -> None:
        """End the cluster and leave nothing of it but its logs."""
        _require_root()
        with _machine(), step("Taking the cluster down"):
            self._clean()
        if left := leftovers():
            raise OneboxError("left behind:\n" + "\n".join(left))

    def start(self, name: str) -> None:
        """Start one daemon again, such as `kube-apiserver` or `kubelet-node-2`."""
        processes.start_again(name)
        if name == "kube-apiserver":
            controlplane.wait_until_ready()

    def stop(self, name: str, sign: signal.Signals = signal.SIGTERM) -> None:
        """Stop one daemon; with SIGKILL it has no time for a goodbye."""
        if name not in processes.names():
            raise OneboxError(f"no daemon is called {name}; there are: {', '.join(processes.names())}")
        processes.stop(name, sign)

    def heal(self) -> None:
        """Start whatever does not run, and wait until both nodes are ready."""
        self.start_all()

    def node(self, name: str) -> Node:
        """Look up a node by its name."""
        if name not in ALL_NODES:
            raise OneboxError(f"no node is called {name}; there are: {', '.join(ALL_NODES)}")
        return Node(name)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return what it printed."""
        return run(binaries.path("kubectl"), f"--kubeconfig={self.kubeconfig}", *words, stdin=stdin)

    def is_up(self) -> bool:
        """Say whether every daemon of this checkout's cluster runs and the API server answers."""
        wanted = [*controlplane.NAMES, *(daemon.name for name in NODE_NAMES for daemon in node.daemons(name))]
        return self.kubeconfig.exists() and all(map(processes.alive, wanted)) and controlplane.is_ready()

    def status(self) -> str:
        """Describe daemons and nodes, line by line."""
        lines = [f"{name:<26} {processes.pid(name) or 'stopped'}" for name in processes.names()]
        if lines and controlplane.is_ready():
            lines.append(self.kubectl("get", "nodes", "--output=wide").rstrip())
        return "\n".join(lines) or "no cluster of this checkout"

    def _is_ready(self) -> bool:
        processes.require(*processes.names())
        return all(Node(name).is_ready() for name in NODE_NAMES)

    def _refresh(self) -> None:
        """Give the nodes that run the newest images, and the operator's pods too."""
        if OPERATOR_IMAGE in set().union(*(node.refresh(name) for name in NODE_NAMES)):
            chart.restart(self.kubectl)

    def _clean(self) -> None:
        clean()
        for entry in STATE.iterdir() if STATE.exists() else ():
            if entry.name != "logs":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextlib.contextmanager
def _machine() -> Iterator[None]:
    """Let one process change the machine's cluster, and only the checkout that it belongs to."""
    with lock(CACHE / "cluster.lock"):
        _require_ours()
        yield


def _require_ours() -> None:
    """Refuse to touch the cluster of another checkout; one whose checkout is gone is anybody's to clean up."""
    owner = Path(OWNER.read_text()) if OWNER.exists() else STATE
    if owner != STATE and owner.exists() and cgroups.members():
        raise OneboxError(f"another checkout's cluster is up: run `make cluster-down` in {owner.parent}")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise OneboxError("nodes need root (mounts, control groups, a bridge): run it with sudo")
