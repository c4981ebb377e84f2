"""A node: one containerd and one kubelet with folders, addresses and control groups of their own.

`cluster.py` starts, stops and kills nodes. Both nodes share the host's network and one bridge, so their pods reach
each other; everything else is apart, and killing one's processes is what a lost machine looks like to the cluster.
"""

import contextlib
import json
import os
import shutil
from pathlib import Path

from tools.onebox import binaries, certificates, cgroups, mounts, processes, store
from tools.onebox.paths import (
    BRIDGE,
    CONFIGURATION,
    GATEWAY,
    IMAGES,
    LOGS,
    NAME,
    NETWORK,
    NEWER_NODE,
    NODES,
    PAUSE_IMAGE,
    RUN,
    STATE,
    containerd_socket,
    node_address,
    node_number,
)
from tools.onebox.processes import Daemon
from tools.onebox.shell import write_if_changed

NEWER_NODE_TAINT = {"key": f"{NAME}.dev/newer-node", "value": "true", "effect": "NoSchedule"}
_SERVES_KUBELETS = b"Start streaming server"  # the last line of its start


def start(node: str) -> None:
    """Start a node; one that runs is left alone, one that was killed comes back with its old disk."""
    if node == NEWER_NODE:
        binaries.ensure(binaries.CONTAINERD)
    if not (NODES / node).exists():
        store.clone(node)
    _write_configuration(node)
    containerd, kubelet = daemons(node)
    if not processes.alive(containerd.name):
        log = LOGS / f"{containerd.name}.log"
        before = log.stat().st_size if log.exists() else 0
        processes.start(containerd)
        # It answers before its part for kubelets does, and a kubelet that meets "server is not initialized yet" ends.
        processes.wait(lambda: _SERVES_KUBELETS in log.read_bytes()[before:], f"containerd of {node} answers", 60)
    processes.start(kubelet)


def daemons(node: str) -> tuple[Daemon, Daemon]:
    """Say what runs on a node."""
    group = f"{node}/daemons"
    containerd = (*_containerd(node), "--config", str(CONFIGURATION / f"containerd-{node}.toml"))
    return Daemon(f"containerd-{node}", containerd, group), Daemon(f"kubelet-{node}", _kubelet(node), group)


def _containerd(node: str) -> tuple[str, ...]:
    """Return the program of a node; ours comes with a shim of the same version, which it looks for in PATH."""
    if node != NEWER_NODE:
        return ("/usr/bin/containerd",)
    program = binaries.path("containerd")
    return ("/usr/bin/env", f"PATH={program.parent}:{os.environ['PATH']}", str(program))


def kill(node: str) -> None:
    """End everything on a node at once, daemons and pods alike, as a power cut would."""
    sockets = _shim_sockets(node)
    cgroups.kill(node)
    for socket in sockets:
        socket.unlink(missing_ok=True)


def refresh(node: str, *more: str) -> set[str]:
    """Give a running node the images that were built meanwhile, and these; name those that were new to it."""
    return store.deliver(containerd_socket(node), store.node_root(node), (*IMAGES, *more))


def remove(node: str) -> None:
    """End a node for good: processes, mounts, folders; its images stay in the cache for the next one."""
    kill(node)
    for name in (f"containerd-{node}", f"kubelet-{node}"):
        processes.forget(name)
    mounts.unmount_below(NODES / node, RUN / node, store.node_root(node))
    cgroups.remove(node)
    for folder in (NODES / node, RUN / node):
        shutil.rmtree(folder, ignore_errors=True)


def _shim_sockets(node: str) -> list[Path]:
    """Find the sockets of container shims: they lie in a shared folder, and each container's bundle names its own."""
    bundles, addresses = RUN / node / "state" / "io.containerd.runtime.v2.task", []
    for bundle in bundles.glob("*/*"):  # a container that ends meanwhile takes it away
        with contextlib.suppress(FileNotFoundError):
            addresses.append((bundle / "address").read_text().strip())
        with contextlib.suppress(FileNotFoundError):  # of containerd 2
            addresses.append(json.loads((bundle / "bootstrap.json").read_text())["address"])
    return [Path(address.removeprefix("unix://")) for address in addresses]


def _write_configuration(node: str) -> None:
    for folder in (RUN / node, STATE / "pod-logs" / node):
        folder.mkdir(parents=True, exist_ok=True)
    write_if_changed(CONFIGURATION / f"containerd-{node}.toml", _containerd_configuration(node))
    write_if_changed(CONFIGURATION / f"kubelet-{node}.json", json.dumps(_kubelet_configuration(node), indent=1))
    write_if_changed(NODES / node / "cni" / f"{NAME}.conflist", json.dumps(_pod_network(node), indent=1))


def _containerd_configuration(node: str) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""
version = 2
root = "{store.node_root(node)}"
state = "{RUN / node / "state"}"
[grpc]
  address = "{containerd_socket(node)}"
[{cri}]
  sandbox_image = "{PAUSE_IMAGE}"
  stream_server_address = "127.0.0.1"
  # A pod may not ask for a lower out-of-memory score than ours: that takes a capability which CI machines withhold.
  restrict_oom_score_adj = true
  # Network namespaces lie below our own folder, not in the machine's /run/netns.
  netns_mounts_under_state_dir = true
[{cri}.cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{NODES / node / "cni"}"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [{cri}.containerd.runtimes.runc.options]
    SystemdCgroup = false
    Root = "{RUN / node / "runc"}"
"""


def _pod_network(node: str) -> dict[str, object]:
    """Address pods from the node's own part of the one network that both nodes share."""
    third = node_number(node)
    addresses = {
        "subnet": NETWORK,
        "rangeStart": f"10.88.{third}.1",
        "rangeEnd": f"10.88.{third}.254",
        "gateway": GATEWAY,
    }
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": False,  # the bridge has its address already, and the plugin would switch forwarding on everywhere
        "hairpinMode": True,  # a pod may reach itself through a service
        "ipam": {
            "type": "host-local",
            "dataDir": str(NODES / node / "addresses"),
            "ranges": [[addresses]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": NAME, "plugins": [bridge]}


def _kubelet(node: str) -> tuple[str, ...]:
    return (
        str(binaries.path("kubelet")),
        f"--config={CONFIGURATION / f'kubelet-{node}.json'}",
        f"--kubeconfig={certificates.kubeconfig(f'kubelet-{node}')}",
        f"--hostname-override={node}",
        f"--node-ip={node_address(node)}",
        f"--root-dir={NODES / node / 'kubelet'}",
        f"--cert-dir={NODES / node / 'kubelet' / 'pki'}",
    )


def _kubelet_configuration(node: str) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node_address(node),
        "healthzPort": 0,
        "containerRuntimeEndpoint": f"unix://{containerd_socket(node)}",
        "tlsCertFile": str(certificates.certificate(f"serving-{node}")),
        "tlsPrivateKeyFile": str(certificates.key(f"serving-{node}")),
        "authentication": {"x509": {"clientCAFile": str(certificates.AUTHORITY)}, "anonymous": {"enabled": False}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{NAME}/{node}",
        "failCgroupV1": False,  # some machines, CI's among them, still have version 1
        "failSwapOn": False,
        "resolvConf": "/dev/null",  # there is no cluster DNS, and the machine's own is not for pods
        "podLogsDir": str(STATE / "pod-logs" / node),
        "volumePluginDir": str(NODES / node / "plugins"),
        "makeIPTablesUtilChains": False,  # kube-proxy here does without them
        "oomScoreAdj": 0,
        "maxPods": 200,
        "registerWithTaints": [NEWER_NODE_TAINT] if node == NEWER_NODE else [],
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        # The machine's disk and memory are not ours alone: never evict for them, never collect our images.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    }
