"""Tell what keeps a pod from starting, in the words of the scheduler or the kubelet. It is pure.

What the kubelet writes into events only (a volume that cannot be mounted, an image that is being pulled) the operator
cannot know, as it may not read events: it says where a user finds it. The core ignores for a short time what every pod
goes through (core/situation/obstacles.py).
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from trainmaster.core.situation.obstacles import (
    BEING_CREATED,
    CLAIM_OF_ONE_POD,
    IMAGE_NOT_MOUNTED,
    INITIALIZING,
    NOT_MOUNTED,
    NOT_SCHEDULED,
    NOT_TAKEN_UP,
)
from trainmaster.core.states.observed import Obstacle, ReplicaPhase

Document = dict[str, Any]

# Every pod goes through these.
_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
# The kubelet reports these two in turns for the same error.
_ALIASES = {"ErrImagePull": "ImagePullBackOff"}
# Of a name that no registry can have, some runtimes say that it could not be pulled.
_NO_NAME = re.compile(r"invalid reference format|failed to parse image reference")
_VOLUME_MISSING = re.compile(r"persistentvolumeclaim .* (not found|bound to non-existent|is being deleted)|\blost\b")
# So runtimes without image volumes read such a mount, as one without a path: containerd below 2.1, CRI-O below 1.31.
_NO_PATH = re.compile(r"""failed to mkdir "": mkdir : no such file or directory|[Mm]ount\.HostPath is empty""")
# The scheduler says this if another pod uses a claim that is for one pod at a time.
_ONE_POD_ONLY = re.compile(r"ReadWriteOncePod access mode")


def obstacle_of(pod: Document) -> Obstacle | None:
    """Return what keeps the pod from starting; None if nothing does.

    For a pod without a node, Kubernetes tells since when it has none, but not since when for this reason.
    """
    status = pod.get("status") or {}
    scheduled = condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason"):
        message = scheduled.get("message") or ""
        if _VOLUME_MISSING.search(message):
            return Obstacle("VolumeMissing", message)
        if _ONE_POD_ONLY.search(message):
            return Obstacle(CLAIM_OF_ONE_POD, message)
        return Obstacle(scheduled["reason"], message, seconds(scheduled.get("lastTransitionTime")) or None)
    failing = _failing_container(pod, status)
    if failing or status.get("phase") != ReplicaPhase.PENDING:
        return failing
    if scheduled.get("status") == "True":
        return _on_its_way(pod, status, scheduled)
    placed = (pod.get("spec") or {}).get("nodeName") or any(_containers(status))
    return None if scheduled or placed else _overlooked(pod)


def _overlooked(pod: Document) -> Obstacle:
    name, who = pod["metadata"]["name"], (pod.get("spec") or {}).get("schedulerName") or "default-scheduler"
    created = seconds(pod["metadata"].get("creationTimestamp")) or None
    return Obstacle(NOT_SCHEDULED, f"The scheduler {who} has not looked at the pod {name}", created)


def _failing_container(pod: Document, status: Document) -> Obstacle | None:
    """Return why the first container that does not start cannot; None if none says so.

    In a pod that runs, the training container has started, so another container that waits is no obstacle.
    """
    if status.get("phase") == ReplicaPhase.RUNNING:
        return None
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, name = waiting.get("reason") or "", container.get("name") or ""
        if reason not in _ON_ITS_WAY:
            message = f"container {name}: {waiting.get('message') or reason}"
            unmounted = _NO_PATH.search(message) if _mounts_image(pod) else None
            if unmounted:
                what = "The node's container runtime cannot mount an image: containerd 2.1 or CRI-O 1.31 is needed"
                return Obstacle(IMAGE_NOT_MOUNTED, f"{what} (container {name}: {unmounted[0]})", container=name)
            told = "InvalidImageName" if _NO_NAME.search(message) else _ALIASES.get(reason, reason)
            return Obstacle(told, message, container=name)
    return None


def _mounts_image(pod: Document) -> bool:
    return any("image" in volume for volume in (pod.get("spec") or {}).get("volumes") or ())


def _on_its_way(pod: Document, status: Document, scheduled: Document) -> Obstacle | None:
    """Return how far a pod has come that has a node and reports no failure, and since when."""
    name = pod["metadata"]["name"]
    placed = seconds(scheduled.get("lastTransitionTime")) or None
    ready = condition(status, "PodReadyToStartContainers")
    if ready.get("status") == "False":
        what = "A volume (a ConfigMap, a Secret, a claim) or the network of the pod is not ready on its node"
        return Obstacle(NOT_MOUNTED, f"{what}: `kubectl describe pod {name}` tells which", placed)
    if not ready and not any(_containers(status)):
        node = (pod.get("spec") or {}).get("nodeName") or "its node"
        return Obstacle(NOT_TAKEN_UP, f"{node} has not begun with the pod {name}", placed)
    first = _first_that_runs(pod, status)
    if first:
        since = seconds(first["state"]["running"].get("startedAt")) or placed
        what = f"The init container {first['name']} still runs"
        return Obstacle(INITIALIZING, f"{what}: `kubectl logs {name} -c {first['name']}` tells what it does", since)
    ended = [(one.get("state") or {}).get("terminated") or {} for one in status.get("initContainerStatuses") or ()]
    moments = [*(seconds(one.get("finishedAt")) for one in ended), seconds(ready.get("lastTransitionTime"))]
    what = "A container is being created, or its image pulled"
    where = f"the events that `kubectl describe pod {name}` shows tell which"
    return Obstacle(BEING_CREATED, f"{what}: {where}", max(moments) or placed)


def _first_that_runs(pod: Document, status: Document) -> Document | None:
    """Return the init container that the others wait for; None if none runs. A native sidecar that is up is none."""
    spec = {one.get("name"): one for one in (pod.get("spec") or {}).get("initContainers") or ()}
    for one in status.get("initContainerStatuses") or ():
        stays = spec.get(one.get("name"), {}).get("restartPolicy") == "Always"
        if "running" in (one.get("state") or {}) and not (stays and one.get("started")):
            found: Document = one
            return found
    return None


def _containers(status: Document) -> Iterator[Document]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(kind) or ()


def condition(status: Document, kind: str) -> Document:
    """Return the pod's condition of this type; empty if it has none."""
    found: Document = next((c for c in status.get("conditions") or () if c.get("type") == kind), {})
    return found


def seconds(timestamp: str | None) -> float:
    """Return a Kubernetes timestamp in seconds since the epoch; 0 if there is none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
