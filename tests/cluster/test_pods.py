"""From a pod's JSON to what the core wants to know of it."""

from typing import Any

import pytest
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cluster import pod_reading
from trainmaster.cluster.waiting import seconds
from trainmaster.core.failures import failures
from trainmaster.core.states.observed import Ending, Obstacle, Replica
from trainmaster.queueing import Key
from trainmaster.wire import names

Document = dict[str, Any]

SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T12:00:01Z"}

LABELS = {
    names.LABEL_JOB: "digits",
    names.LABEL_ROLE: "worker",
    names.LABEL_INDEX: "1",
    names.LABEL_INCARNATION: "2",
}
OWNER = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "digits", "uid": "job-1", "controller": True}


def a_pod(status: Document | None = None, **metadata: Any) -> Document:
    named = {
        "name": "digits-worker-1-2",
        "namespace": "lab",
        "uid": "pod-1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": LABELS,
        "ownerReferences": [OWNER],
    }
    return {"metadata": {**named, **metadata}, "spec": {"nodeName": "node-1"}, "status": status or {}}


def replica(status: Document, **metadata: Any) -> Replica:
    return pod_reading.read(a_pod(status, **metadata)).replica


def trainer(**state: Any) -> list[Document]:
    return [{"name": "trainer", "state": state}]


@pytest.mark.parametrize("role", ["worker", "parameterServer", "queen", ""])
def test_a_pod_with_a_worker_s_labels_and_another_name_takes_no_place(role: str) -> None:
    labels = {**LABELS, names.LABEL_ROLE: role}
    record = pod_reading.read(a_pod({"phase": "Running"}, name="forged-0", labels=labels))
    assert (record.replica.role, record.replica.index, record.replica.incarnation) == ("", -1, -1)
    assert (record.job, record.job_uid) == (Key("lab", "digits"), "job-1"), "it is seen, and not wanted"


def test_who_it_is() -> None:
    record = pod_reading.read(a_pod({"phase": "Running", "podIP": "10.0.0.9"}))
    assert (record.job, record.job_uid) == (Key("lab", "digits"), "job-1")
    seen = record.replica
    assert (seen.role, seen.index, seen.incarnation) == ("worker", 1, 2)
    assert (seen.name, seen.uid, seen.node, seen.address) == ("digits-worker-1-2", "pod-1", "node-1", "10.0.0.9")
    assert seen.created == 1772366400.0
    assert seen.alive


@pytest.mark.parametrize("edited", [1, 10**9 - 1, 10**9, 10**12, 2**53])
def test_every_pod_that_a_status_can_ask_for_is_known_again(edited: int) -> None:
    """Else it would be deleted as nobody's, and made again, for ever."""
    wanted = TrainingJobStatus.read({"incarnations": {"worker-1": edited}}).incarnations.get("worker-1", 0)
    labels = {**LABELS, names.LABEL_INCARNATION: str(wanted)}
    seen = replica({"phase": "Running"}, name=names.replica_name("digits", "worker", 1, wanted), labels=labels)
    assert (seen.role, seen.index, seen.incarnation) == ("worker", 1, wanted)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {names.LABEL_JOB: "digits", names.LABEL_INDEX: "x" * 63}},
        {"labels": {names.LABEL_INDEX: "-1", names.LABEL_INCARNATION: "1" * 60}},
        {"labels": None},
        {"ownerReferences": None},
        {"ownerReferences": [{**OWNER, "kind": "Job"}]},
        {"ownerReferences": [{**OWNER, "controller": False}]},
        {"creationTimestamp": None},
    ],
)
def test_nonsense_is_nobodys_replica_and_no_error(metadata: Document) -> None:
    record = pod_reading.read(a_pod({}, **metadata))
    assert record.replica.index in (-1, 1)


ALIVE: list[tuple[Document, str, bool]] = [
    ({"phase": "Pending"}, "Pending", True),
    ({"phase": "Running"}, "Running", True),
    ({"phase": "Unknown"}, "Running", True),
    ({"phase": "Succeeded"}, "Succeeded", False),
    ({"phase": "Failed", "reason": "Evicted"}, "Failed", False),
    ({}, "Pending", True),
    # A sidecar keeps the pod running; the trainer has ended all the same.
    ({"phase": "Running", "containerStatuses": trainer(terminated={"exitCode": 0})}, "Succeeded", False),
    ({"phase": "Running", "containerStatuses": trainer(terminated={"exitCode": 137})}, "Failed", False),
]


@pytest.mark.parametrize(("status", "phase", "alive"), ALIVE)
def test_phase(status: Document, phase: str, alive: bool) -> None:
    assert (replica(status).phase, replica(status).alive) == (phase, alive)


@pytest.mark.parametrize(
    ("ready", "containers", "silent"),
    [("False", "True", True), ("True", "True", False), ("False", "False", False), (None, None, False)],
)
def test_a_node_that_does_not_answer_takes_ready_and_nothing_else(
    ready: str | None, containers: str | None, silent: bool
) -> None:
    """As the controller of nodes does it (MarkPodsNotReady)."""
    told = [{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": containers}]
    status = {"phase": "Running", "conditions": told if ready else []}
    assert replica(status).node_silent is silent


def test_a_sidecar_that_outlives_the_trainer_is_seen() -> None:
    ended = trainer(terminated={"exitCode": 1})
    sidecar = {"name": "logs", "state": {"running": {}}}
    assert replica({"phase": "Running", "containerStatuses": [*ended, sidecar]}).kept_by == "logs"
    gone = "2026-03-01T12:00:00Z"
    assert not replica({"containerStatuses": [*ended, sidecar]}, deletionTimestamp=gone).kept_by
    assert not replica({"phase": "Running", "containerStatuses": trainer(running={})}).kept_by


def test_a_native_sidecar_is_ended_by_the_kubelet() -> None:
    """Who deletes the pod meanwhile takes the log of the trainer away."""
    status = {"phase": "Running", "containerStatuses": trainer(terminated={"exitCode": 0})}
    sidecar = {"name": "logs", "state": {"running": {}}}
    assert not replica({**status, "initContainerStatuses": [sidecar]}).kept_by


def test_a_pod_whose_only_container_has_just_ended_is_kept_by_none() -> None:
    """The kubelet says Running for a moment longer; who deletes the pod then takes its log away."""
    assert not replica({"phase": "Running", "containerStatuses": trainer(terminated={"exitCode": 0})}).kept_by


def test_one_that_is_being_deleted_is_not_alive() -> None:
    seen = replica({"phase": "Running"}, deletionTimestamp="2026-03-01T12:00:00Z")
    assert seen.deleting
    assert not seen.alive


KILLED = {"exitCode": 137, "reason": "OOMKilled", "message": "line\n"}
INIT_FAILED = [{"name": "trainmaster-code", "state": {"terminated": {"exitCode": 1, "message": "no space left"}}}]
ENDINGS: list[tuple[Document, Ending | None]] = [
    ({"phase": "Running"}, None),
    ({"phase": "Failed", "containerStatuses": trainer(terminated=KILLED)}, Ending(137, "OOMKilled", "line")),
    ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, Ending(None, "Evicted", "low on memory")),
    (
        {"phase": "Failed", "initContainerStatuses": INIT_FAILED},
        Ending(1, "", "no space left", "trainmaster-code"),
    ),
]


@pytest.mark.parametrize(("status", "ending"), ENDINGS)
def test_how_it_ended(status: Document, ending: Ending | None) -> None:
    assert replica(status).ending == ending


PROBE = {"exec": {"command": ["false"]}}


@pytest.mark.parametrize(
    ("template", "code", "suspect"),
    [
        (
            {"livenessProbe": PROBE},
            137,
            "livenessProbe of its template may have failed: `kubectl describe pod digits-w",
        ),
        ({"lifecycle": {"postStart": PROBE}}, 137, "lifecycle.postStart of its template"),
        ({"startupProbe": PROBE, "livenessProbe": PROBE}, 143, "livenessProbe or startupProbe of its template"),
        ({"lifecycle": {"preStop": PROBE}}, 137, ""),
        ({"livenessProbe": PROBE}, 1, ""),
        ({}, 137, ""),
    ],
)
def test_what_may_have_killed_it_without_a_word(template: Document, code: int, suspect: str) -> None:
    """Probes and hooks that fail are in the pod's events alone, which the operator may not read."""
    pod = a_pod({"phase": "Failed", "containerStatuses": trainer(terminated={"exitCode": code, "reason": "Error"})})
    pod["spec"]["containers"] = [{"name": "side", "livenessProbe": PROBE}, {"name": "trainer", **template}]
    ended = pod_reading.read(pod).replica
    assert ended.ending is not None
    assert ended.ending.suspect.startswith(suspect)
    assert bool(ended.ending.suspect) is bool(suspect)
    assert ended.ending.suspect in failures.of_replica(ended, 0).evidence


def condition(kind: str, value: str, reason: str, message: str = "") -> list[Document]:
    return [{"type": kind, "status": value, "reason": reason, "message": message}]


DISRUPTIONS: list[tuple[Document, str]] = [
    ({"phase": "Running"}, ""),
    (
        {"phase": "Failed", "conditions": condition("DisruptionTarget", "True", "PreemptionByScheduler")},
        "PreemptionByScheduler",
    ),
    ({"phase": "Running", "conditions": condition("DisruptionTarget", "False", "x")}, ""),
    ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    ({"phase": "Failed", "reason": "NodeShutdown"}, "NodeShutdown"),
    ({"phase": "Failed", "reason": "OutOfcpu"}, "OutOfcpu"),
    ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}, "OutOfnvidia.com/gpu"),
    ({"phase": "Failed", "reason": "OutOfnvidia.com/mig-1g.5gb"}, "OutOfnvidia.com/mig-1g.5gb"),
    ({"phase": "Failed", "reason": "DeadlineExceeded"}, ""),
    ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, ""),
]


@pytest.mark.parametrize(("status", "reason"), DISRUPTIONS)
def test_whose_fault_it_was(status: Document, reason: str) -> None:
    assert replica(status).disruption == reason


def waiting(reason: str, message: str = "") -> list[Document]:
    return trainer(waiting={"reason": reason, "message": message})


def waits(reason: str, message: str, container: str = "trainer") -> Obstacle:
    """What is told of a container that waits."""
    return Obstacle(reason, f"container {container}: {message}", container=container)


RUNS = trainer(running={})
CLAIM_MISSING = 'persistentvolumeclaim "models" not found'
ONE_POD_ONLY = (
    "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and "
    "ReadWriteOncePod access mode."
)
UNBOUND = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
OBSTACLES: list[tuple[Document, Obstacle | None]] = [
    ({"phase": "Pending"}, None),
    ({"containerStatuses": waiting("ContainerCreating")}, None),
    ({"containerStatuses": waiting("PodInitializing")}, None),
    ({"containerStatuses": waiting("ImagePullBackOff", "back-off")}, waits("ImagePullBackOff", "back-off")),
    ({"containerStatuses": waiting("ErrImagePull", "not found")}, waits("ImagePullBackOff", "not found")),
    ({"containerStatuses": waiting("InvalidImageName", "bad")}, waits("InvalidImageName", "bad")),
    (
        {"containerStatuses": waiting("ErrImagePull", "failed to parse image reference: invalid reference format")},
        waits("InvalidImageName", "failed to parse image reference: invalid reference format"),
    ),
    ({"containerStatuses": waiting("NobodyKnows")}, waits("NobodyKnows", "NobodyKnows")),
    (
        {"initContainerStatuses": [{"name": "mesh", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        waits("CrashLoopBackOff", "CrashLoopBackOff", "mesh"),
    ),
    # The trainer runs, and a sidecar that ends again and again keeps nobody from training.
    (
        {"phase": "Running", "initContainerStatuses": waiting("CrashLoopBackOff"), "containerStatuses": RUNS},
        None,
    ),
    ({"conditions": condition("PodScheduled", "False", "Unschedulable", "full")}, Obstacle("Unschedulable", "full")),
    ({"conditions": condition("PodScheduled", "True", "")}, None),
    (
        {
            "conditions": condition(
                "PodScheduled", "False", "Unschedulable", f"0/2 nodes are available: {CLAIM_MISSING}."
            )
        },
        Obstacle("VolumeMissing", f"0/2 nodes are available: {CLAIM_MISSING}."),
    ),
    (
        {"conditions": condition("PodScheduled", "False", "Unschedulable", ONE_POD_ONLY)},
        Obstacle("ClaimOfOnePod", ONE_POD_ONLY),
    ),
    (
        {"conditions": condition("PodScheduled", "False", "Unschedulable", 'persistentvolumeclaim "m" is lost')},
        Obstacle("VolumeMissing", 'persistentvolumeclaim "m" is lost'),
    ),
    ({"conditions": condition("PodScheduled", "False", "Unschedulable", UNBOUND)}, Obstacle("Unschedulable", UNBOUND)),
    (
        {"conditions": condition("PodScheduled", "False", "SchedulingGated", "gated")},
        Obstacle("SchedulingGated", "gated"),
    ),
]


def test_since_when_it_could_not_be_placed() -> None:
    since = [{**condition("PodScheduled", "False", "Unschedulable")[0], "lastTransitionTime": "2026-03-01T12:00:00Z"}]
    assert replica({"conditions": since}).obstacle == Obstacle("Unschedulable", "", 1772366400.0)


@pytest.mark.parametrize(("status", "obstacle"), OBSTACLES)
def test_what_is_in_its_way(status: Document, obstacle: Obstacle | None) -> None:
    assert replica(status).obstacle == obstacle


SANDBOX = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2026-03-01T12:00:05Z"}
NO_SANDBOX = {**SANDBOX, "status": "False"}
FETCHES = {"name": "fetch", "state": {"running": {"startedAt": "2026-03-01T12:00:07Z"}}, "started": True}
FETCHED = {"name": "fetch", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-03-01T12:00:09Z"}}}
CREATING, INITIALIZING = waiting("ContainerCreating"), waiting("PodInitializing")
# What a pod with a node says, that reports no failure: reason, since which second, and words of the message.
ON_ITS_WAY: dict[str, tuple[Document, str, int, str]] = {
    "nothing is mounted": (
        {"conditions": [SCHEDULED, NO_SANDBOX], "containerStatuses": CREATING},
        "MountsNotReady",
        1,
        "`kubectl describe pod digits-worker-1-2` tells which",
    ),
    "the kubelet is silent": ({"conditions": [SCHEDULED]}, "NodeNotResponding", 1, "node-1 has not begun"),
    "an image is pulled": (
        {"conditions": [SCHEDULED, SANDBOX], "containerStatuses": CREATING},
        "ContainerCreating",
        5,
        "or its image pulled",
    ),
    "an old kubelet": (
        {"conditions": [SCHEDULED], "containerStatuses": CREATING},
        "ContainerCreating",
        1,
        "`kubectl describe pod digits-worker-1-2` shows",
    ),
    "an init container runs": (
        {
            "conditions": [SCHEDULED, SANDBOX],
            "initContainerStatuses": [FETCHES],
            "containerStatuses": INITIALIZING,
        },
        "PodInitializing",
        7,
        "`kubectl logs digits-worker-1-2 -c fetch`",
    ),
    "an init container has ended": (
        {
            "conditions": [SCHEDULED, SANDBOX],
            "initContainerStatuses": [FETCHED],
            "containerStatuses": INITIALIZING,
        },
        "ContainerCreating",
        9,
        "or its image pulled",
    ),
    "a native sidecar is up": (
        {
            "conditions": [SCHEDULED, SANDBOX],
            "initContainerStatuses": [{**FETCHES, "name": "mesh"}],
            "containerStatuses": INITIALIZING,
        },
        "ContainerCreating",
        5,
        "or its image pulled",
    ),
    "a native sidecar does not get up": (
        {
            "conditions": [SCHEDULED, SANDBOX],
            "initContainerStatuses": [{**FETCHES, "name": "mesh", "started": False}],
            "containerStatuses": INITIALIZING,
        },
        "PodInitializing",
        7,
        "init container mesh",
    ),
}


@pytest.mark.parametrize(("status", "reason", "second", "words"), ON_ITS_WAY.values(), ids=ON_ITS_WAY.keys())
def test_how_far_a_pod_is_that_reports_no_failure(status: Document, reason: str, second: int, words: str) -> None:
    """With its time, as the core passes over what every pod goes through for a moment."""
    sidecars = [{"name": "fetch"}, {"name": "mesh", "restartPolicy": "Always"}]
    pod = a_pod({"phase": "Pending", **status})
    pod["spec"] = {**pod.get("spec", {}), "nodeName": "node-1", "initContainers": sidecars}
    told = pod_reading.read(pod).replica.obstacle
    assert told is not None
    assert (told.reason, told.since) == (reason, seconds(f"2026-03-01T12:00:0{second}Z"))
    assert words in told.message


def test_a_pod_that_no_scheduler_looks_at_is_told_with_the_schedulers_name() -> None:
    """It has no condition at all, for as long as nobody starts that scheduler or corrects the name."""
    pod = a_pod({"phase": "Pending"})
    pod["spec"] = {"schedulerName": "volcanoo"}
    told = pod_reading.read(pod).replica.obstacle
    assert told is not None
    assert (told.reason, told.since) == ("NotScheduled", 1772366400.0)
    assert "scheduler volcanoo has not looked at the pod digits-worker-1-2" in told.message


def test_a_pod_that_has_ended_waits_for_nothing() -> None:
    waits = {"type": "PodReadyToStartContainers", "status": "False"}
    assert replica({"phase": "Failed", "conditions": [SCHEDULED, waits]}).obstacle is None
