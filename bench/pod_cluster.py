"""The one-machine cluster for `bench pod_loss`: a namespace, a claim for the script's notes, and what is seen of it.

The API server keeps times in whole seconds, so phases are timed by when a watch tells of them, on this machine's clock,
which the pods share.
"""

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config
from trainmaster.wire import names

from bench.contestants import SCRIPT
from tools.onebox import Cluster

Document = dict[str, Any]

NAMESPACE = "bench-pod-loss"
CLAIM = "notes"
# What both contestants' pods mount: the script, and the folder of its notes, which is a folder of this machine.
VOLUMES: list[Document] = [
    {"name": "script", "configMap": {"name": "script"}},
    {"name": "notes", "persistentVolumeClaim": {"claimName": CLAIM}},
]
MOUNTS: list[Document] = [{"name": "script", "mountPath": "/script"}, {"name": "notes", "mountPath": "/notes"}]
SCRIPT_IN_POD = f"/script/{SCRIPT.name}"

_WAIT_SECONDS = 180.0
_LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Seen:
    """One event of a watch, and when it came (epoch seconds)."""

    time: float
    kind: str
    document: Document

    @property
    def name(self) -> str:
        """Of the object."""
        return str(self.document["metadata"]["name"])

    @property
    def going(self) -> bool:
        """Deleted, or about to be."""
        return self.kind == "DELETED" or "deletionTimestamp" in self.document["metadata"]

    @property
    def there(self) -> bool:
        """It exists."""
        return not self.going

    @property
    def scheduled(self) -> bool:
        """A node has been found for this pod."""
        return bool(self.document["spec"].get("nodeName"))

    @property
    def started(self) -> bool:
        """The container of this pod runs."""
        statuses = self.document["status"].get("containerStatuses") or ()
        return any("running" in (status.get("state") or {}) for status in statuses)


class Watch:
    """Everything that the API server tells of one kind of object, from now on."""

    def __init__(self, open_watch: Callable[[], Any]) -> None:
        self._seen: list[Seen] = []
        self._stream = open_watch().stream()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait(self, since: float, holds: Callable[[Seen], bool]) -> Seen:
        """The first event after `since` for which it holds.

        Raises:
            TimeoutError: none came.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        looked = 0
        while time.monotonic() < deadline:
            known = len(self._seen)
            for seen in self._seen[looked:known]:
                if seen.time >= since and holds(seen):
                    return seen
            looked = known
            time.sleep(_LOOK_SECONDS)
        raise TimeoutError(f"waited {_WAIT_SECONDS} s for the API server to tell of something")

    def living(self) -> dict[str, Document]:
        """The objects as they were seen last, without those on their way out."""
        newest = {seen.name: seen for seen in list(self._seen)}
        return {name: seen.document for name, seen in newest.items() if not seen.going}

    def _listen(self) -> None:
        rest = b""
        with contextlib.suppress(Exception):  # the cluster goes, and with it the watch
            for chunk in self._stream:
                *lines, rest = (rest + chunk).split(b"\n")
                now = time.time()
                for event in map(json.loads, lines):
                    self._seen.append(Seen(now, event["type"], event["object"]))


@dataclass(frozen=True)
class Place:
    """Where both contestants run."""

    core: Any  # CoreV1Api takes documents too, and its types do not say so
    custom: client.CustomObjectsApi
    pods: Watch
    jobs: Watch
    volume: Path

    def notes(self, name: str) -> Path:
        """A fresh folder for a contestant's notes; pods see it as /notes/NAME."""
        folder = self.volume / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        folder.chmod(0o1777)  # pods run as a number that owns nothing
        return folder

    def create_pod(self, manifest: Document) -> None:
        """Create it."""
        self.core.create_namespaced_pod(NAMESPACE, manifest)

    def delete_pod(self, name: str, grace: int | None) -> None:
        """Delete it; None: with the grace that it asked for itself."""
        more = {} if grace is None else {"grace_period_seconds": grace}
        self.core.delete_namespaced_pod(name, NAMESPACE, **more)

    def create_job(self, manifest: Document) -> None:
        """Create a TrainingJob."""
        self.custom.create_namespaced_custom_object(names.GROUP, names.VERSION, NAMESPACE, names.PLURAL, manifest)

    def delete_job(self, name: str) -> None:
        """Delete a TrainingJob, and its pods with it."""
        self.custom.delete_namespaced_custom_object(names.GROUP, names.VERSION, NAMESPACE, names.PLURAL, name)


@contextlib.contextmanager
def a_cluster(namespace: str) -> Iterator[Cluster]:
    """The cluster that is up, or one for this measurement alone. The namespace, which the caller makes, is deleted."""
    cluster = Cluster()
    was_up = cluster.is_up()
    cluster.up()
    try:
        yield cluster
    finally:
        if was_up:
            cluster.kubectl("delete", "namespace", namespace, "--wait=false")
        else:
            cluster.down()


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """A namespace on the cluster, with what the measurement needs."""
    with a_cluster(NAMESPACE) as cluster:
        yield _made(cluster)


def _made(cluster: Cluster) -> Place:
    os.environ.setdefault("no_proxy", "*")  # the API server is on this machine
    api = config.new_client_from_config(str(cluster.kubeconfig))  # type: ignore[no-untyped-call]
    core: Any = client.CoreV1Api(api)
    custom = client.CustomObjectsApi(api)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    core.create_namespace({"metadata": {"name": NAMESPACE, "labels": labels}})
    core.create_namespaced_config_map(
        NAMESPACE, {"metadata": {"name": "script"}, "data": {SCRIPT.name: SCRIPT.read_text()}}
    )
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    core.create_namespaced_persistent_volume_claim(NAMESPACE, {"metadata": {"name": CLAIM}, "spec": claim})
    cluster.kubectl(
        "wait", f"pvc/{CLAIM}", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s", f"--namespace={NAMESPACE}"
    )
    bound = core.read_namespaced_persistent_volume_claim(CLAIM, NAMESPACE).spec.volume_name
    folder = Path(core.read_persistent_volume(bound).spec.host_path.path)
    pods = Watch(lambda: core.list_namespaced_pod(NAMESPACE, watch=True, _preload_content=False))
    jobs = Watch(
        lambda: custom.list_namespaced_custom_object(
            names.GROUP, names.VERSION, NAMESPACE, names.PLURAL, watch=True, _preload_content=False
        )
    )
    return Place(core, custom, pods, jobs, folder)
