"""Small pods for tests: what the strictest Pod Security standard asks for, around one command."""

import json
from typing import Any

from tests.onebox.flavours import Flavour
from tools.onebox.paths import PAUSE_IMAGE

CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod(name: str, *command: str, node: str | None = None, image: str = PAUSE_IMAGE) -> dict[str, Any]:
    """Describe a pod that runs one command once, with a writable /tmp and nothing else."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "securityContext": CONFINED,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a path in the container
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def create(cluster: Flavour, namespace: str, *manifests: dict[str, Any]) -> None:
    """Create objects in a namespace."""
    for manifest in manifests:
        cluster.kubectl("create", f"--namespace={namespace}", "--filename=-", stdin=json.dumps(manifest))


def wait(cluster: Flavour, namespace: str, name: str, phase: str = "Succeeded") -> None:
    """Wait until a pod reaches a phase."""
    words = ("wait", f"pod/{name}", f"--for=jsonpath={{.status.phase}}={phase}", "--timeout=200s")
    cluster.kubectl(*words, f"--namespace={namespace}")


def output(cluster: Flavour, namespace: str, manifest: dict[str, Any]) -> str:
    """Run a pod to its good end and return what it printed."""
    create(cluster, namespace, manifest)
    name = manifest["metadata"]["name"]
    wait(cluster, namespace, name)
    return cluster.kubectl("logs", name, f"--namespace={namespace}")


def field(cluster: Flavour, namespace: str, name: str, path: str) -> str:
    """Read one field of a pod."""
    return cluster.kubectl("get", "pod", name, f"--namespace={namespace}", f"--output=jsonpath={{{path}}}")
