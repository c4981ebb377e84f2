"""Persistent volumes for tests and examples: folders of the machine, which both nodes see.

`cluster.py` provides them at the end of a start. Kubernetes has no provisioner of its own, so a number of volumes
stand ready; a claim without a storage class gets one of them, and every pod of a job may write to it.
"""

import json
from collections.abc import Callable

from tools.onebox.paths import NODES

COUNT = 40
CLASS = "onebox"


def provide(kubectl: Callable[..., str], count: int = COUNT) -> None:
    """Create the default storage class and its volumes; those that exist stay as they are."""
    items = [_storage_class(), *(_volume(number) for number in range(count))]
    manifest = {"apiVersion": "v1", "kind": "List", "items": items}
    kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(manifest))


def _storage_class() -> dict[str, object]:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": default},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate",
    }


def _volume(number: int) -> dict[str, object]:
    folder = NODES / "volumes" / f"volume-{number:02}"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o1777)  # pods run as a number that owns nothing, and host folders ignore fsGroup
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": folder.name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": CLASS,
            "hostPath": {"path": str(folder)},
        },
    }
