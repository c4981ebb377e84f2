"""Read from a pod's JSON what the core wants to know of the pod. It is pure.

Every pod that is listed or watched goes through it, so it keeps only what is needed.
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from trainmaster.cluster.waiting import condition, obstacle_of, seconds
from trainmaster.core.states.observed import Ending, Replica, ReplicaPhase
from trainmaster.queueing import Key
from trainmaster.wire import names

Document = dict[str, Any]

_DISRUPTIONS = frozenset({"Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"})
# The node refused a pod, because it has less free than the scheduler thought. Try another node.
_NODE_WAS_FULL = re.compile(r"OutOf[A-Za-z0-9][-A-Za-z0-9./_]*$")
_PHASES = frozenset(ReplicaPhase)
_KILLED = (137, 143)  # by SIGKILL, by SIGTERM
_NUMBER = re.compile(rf"\d{{1,{len(str(names.MAX_INCARNATION))}}}")


@dataclass(frozen=True)
class PodRecord:
    """Hold one pod and its job. `job_uid` is empty where no TrainingJob owns the pod.

    `started` is when the training container started, in seconds since the epoch; 0 if it does not run.
    """

    job: Key
    job_uid: str
    replica: Replica
    started: float = 0.0


def read(pod: Document) -> PodRecord:
    """Return what a pod says about itself. This never raises: users can edit labels."""
    metadata, labels = pod["metadata"], pod["metadata"].get("labels") or {}
    replica = _replica(pod, labels)
    job = Key(metadata.get("namespace", ""), labels.get(names.LABEL_JOB, ""))
    has_name = replica.role in names.ROLE_IN_NAMES
    if not has_name or replica.name != names.replica_name(job.name, replica.role, replica.index, replica.incarnation):
        # Its labels were forged or edited: it counts as no replica, and is deleted if it claims to belong to the job.
        replica = dataclasses.replace(replica, role="", index=-1, incarnation=-1)
    running = _main_container(pod.get("status") or {}).get("running") or {}
    return PodRecord(job, owner_uid(pod), replica, seconds(running.get("startedAt")))


def owner_uid(document: Document) -> str:
    """Return the uid of the TrainingJob that controls this object; empty if there is none."""
    for owner in document["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == names.KIND:
            return str(owner["uid"])
    return ""


def _replica(pod: Document, labels: dict[str, str]) -> Replica:
    metadata, status = pod["metadata"], pod.get("status") or {}
    terminated = _main_container(status).get("terminated")
    # The node controller sets Ready to False, and that condition alone, on the pods of a node that does not answer.
    # Nodes are not asked: a namespaced installation may not read them.
    ready, containers = condition(status, "Ready"), condition(status, "ContainersReady")
    node_silent = (ready.get("status"), containers.get("status")) == ("False", "True")
    return Replica(
        role=labels.get(names.LABEL_ROLE, ""),
        index=_number(labels.get(names.LABEL_INDEX)),
        incarnation=_number(labels.get(names.LABEL_INCARNATION)),
        name=metadata["name"],
        uid=metadata["uid"],
        phase=_phase(status, terminated),
        created=seconds(metadata.get("creationTimestamp")),
        address=status.get("podIP") or "",
        node=(pod.get("spec") or {}).get("nodeName") or "",
        deleting="deletionTimestamp" in metadata,
        disruption=_disruption(status),
        disruption_message=condition(status, "DisruptionTarget").get("message") or status.get("message") or "",
        ending=_ending(pod, status, terminated),
        obstacle=obstacle_of(pod),
        revision=(metadata.get("annotations") or {}).get(names.ANNOTATION_REVISION, ""),
        kept_by=_kept_by(pod, terminated),
        node_silent=node_silent,
    )


def _number(label: str | None) -> int:
    return int(label) if label and _NUMBER.fullmatch(label) else -1


def _main_container(status: Document) -> Document:
    """Return the state of the training container. The pod's phase is not enough: a sidecar may keep the pod running."""
    for container in status.get("containerStatuses") or ():
        if container.get("name") == names.MAIN_CONTAINER:
            return container.get("state") or {}
    return {}


def _phase(status: Document, terminated: Document | None) -> ReplicaPhase:
    told = status.get("phase") or ReplicaPhase.PENDING
    phase = ReplicaPhase(told) if told in _PHASES else ReplicaPhase.RUNNING  # "Unknown": its node does not answer
    if terminated and phase in (ReplicaPhase.PENDING, ReplicaPhase.RUNNING):
        return ReplicaPhase.FAILED if terminated.get("exitCode") else ReplicaPhase.SUCCEEDED
    return phase


def _kept_by(pod: Document, terminated: Document | None) -> str:
    """Return the sidecar that keeps the pod, and so its GPUs, after the trainer has ended; empty where none does.

    Ended containers alone do not count: the kubelet reports them a moment before it reports that the pod has ended. Nor
    do native sidecars (init containers with restartPolicy Always): the kubelet ends them itself.
    """
    if terminated is None or "deletionTimestamp" in pod["metadata"]:
        return ""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    running = (one.get("name") or "" for one in containers if "running" in (one.get("state") or {}))
    return next(running, "")


def _ending(pod: Document, status: Document, terminated: Document | None) -> Ending | None:
    if terminated:
        reason, message = terminated.get("reason") or "", terminated.get("message") or ""
        killed = terminated.get("exitCode") in _KILLED and reason != "OOMKilled"
        return Ending(terminated.get("exitCode"), reason, message.strip(), suspect=_suspect(pod) if killed else "")
    if status.get("phase") in (ReplicaPhase.FAILED, ReplicaPhase.SUCCEEDED):
        return _failed_before(status) or Ending(None, status.get("reason") or "", status.get("message") or "")
    return None


def _suspect(pod: Document) -> str:
    """Return what of the template ends the trainer without a word in the pod's status; empty where nothing does.

    The kubelet tells of a probe that failed, and of a hook, in events only.
    """
    containers = (pod.get("spec") or {}).get("containers") or ()
    trainer: Document = next((one for one in containers if one.get("name") == names.MAIN_CONTAINER), {})
    found = [kind for kind in ("livenessProbe", "startupProbe") if trainer.get(kind)]
    found += ["lifecycle.postStart"] if (trainer.get("lifecycle") or {}).get("postStart") else []
    if not found:
        return ""
    pods_name = pod["metadata"]["name"]
    return f"{' or '.join(found)} of its template may have failed: `kubectl describe pod {pods_name}` tells"


def _failed_before(status: Document) -> Ending | None:
    """Return the ending of a failed init container; None if none failed. The training container never starts then."""
    for container in status.get("initContainerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            reason, message = ended.get("reason") or "", ended.get("message") or ""
            return Ending(ended["exitCode"], reason, message.strip(), container["name"])
    return None


def _disruption(status: Document) -> str:
    """Return why the pod was ended from outside the job; empty if it was not."""
    target = condition(status, "DisruptionTarget")
    if target.get("status") == "True":
        return target.get("reason") or "DisruptionTarget"
    reason = status.get("reason") or ""
    return reason if reason in _DISRUPTIONS or _NODE_WAS_FULL.match(reason) else ""
