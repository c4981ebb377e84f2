"""Ends of ranks and of replicas without a Python error that tells: codes, signals, words of kubelet and containerd."""

from __future__ import annotations

import dataclasses
from typing import Any

from trainmaster.core.states.observed import Replica
from trainmaster.wire.messages import ErrorReport, ExitReport

from tests.builders import a_replica, deleting, ended, evicted
from tests.core.failures.failure_labels import (
    ASKED,
    AWAY,
    CRASHED,
    DELETED,
    DEVICE,
    DEVICE_MEMORY,
    DISK,
    ECHO,
    ENDED,
    EXITED,
    FAILED,
    HUNG,
    KILLED,
    MEMORY,
    MOVED,
    STALLED,
    WEATHER,
    WRONG,
    Label,
)


def an_end(**members: Any) -> ExitReport:
    """A rank's end."""
    return ExitReport(attempt=1, rank=0, step=10, **members)


def an_error(kind: str, message: str) -> ErrorReport:
    """Beside a code or a signal."""
    return ErrorReport(kind, message, "train.py:9 in step")


RANKS: list[tuple[ExitReport, Label]] = [
    (an_end(exit_code=78), WRONG),
    (an_end(exit_code=78, error=an_error("ConfigurationError", "spec.training.task: no such module")), WRONG),
    (an_end(exit_code=1), EXITED),
    (an_end(exit_code=3), EXITED),
    (an_end(exit_code=126), WRONG),
    (an_end(exit_code=127), WRONG),
    (an_end(exit_code=0), EXITED),  # it ended well, and before the others
    (an_end(exit_code=-1), EXITED),
    (an_end(), EXITED),
    (an_end(exit_code=137), KILLED),  # a shell between us and a process that was killed, but not for memory
    (an_end(exit_code=139), CRASHED),
    (an_end(exit_code=134), CRASHED),
    (an_end(exit_code=143), ASKED),
    (an_end(exit_code=130), ASKED),
    (an_end(signal="SIGKILL"), KILLED),
    (an_end(signal="SIGKILL", out_of_memory=True), MEMORY),
    (an_end(signal="SIGUSR1"), KILLED),
    (an_end(signal="SIGXCPU"), KILLED),
    (an_end(signal="SIGTERM"), ASKED),
    (an_end(signal="SIGINT"), ASKED),
    (an_end(exit_code=130, error=an_error("KeyboardInterrupt", "")), ASKED),
    (an_end(signal="SIGSEGV"), CRASHED),
    (an_end(signal="SIGABRT"), CRASHED),
    (an_end(signal="SIGBUS"), CRASHED),
    (an_end(signal="SIGFPE"), CRASHED),
    (an_end(signal="SIGILL"), CRASHED),
    (an_end(signal="SIGKILL", hung=True, stacks="Thread 1:\n  train.py:9 in step"), HUNG),
    (an_end(signal="SIGTERM", hung=True), HUNG),
    (an_end(signal="SIGKILL", hung=True, waiting=True), STALLED),
    (an_end(signal="SIGKILL", hung=True, out_of_memory=True), HUNG),
    # The watchdog of NCCL aborts the process after it has told why.
    (an_end(signal="SIGABRT", error=an_error("DistBackendError", "NCCL communicator was aborted on rank 1.")), ECHO),
    (an_end(exit_code=1, out_of_memory=True, error=an_error("OutOfMemoryError", "CUDA out of memory.")), DEVICE_MEMORY),
    (an_end(signal="SIGKILL", error=an_error("WarmParentLost", "the warm parent died")), KILLED),
    (an_end(signal="SIGKILL", out_of_memory=True, error=an_error("WarmParentLost", "the warm parent died")), MEMORY),
]


def refused(reason: str, message: str = "") -> Replica:
    """By a node, before any container was started."""
    return ended(a_replica(), None, reason, message)


def disrupted(reason: str, message: str = "", **more: Any) -> Replica:
    """With the cluster's reason, and its words."""
    return dataclasses.replace(ended(a_replica(), 137), disruption=reason, disruption_message=message, **more)


SHIM = "failed to create containerd task: failed to create shim task: "
OCI = f"{SHIM}OCI runtime create failed: runc create failed: unable to start container process: "

REPLICAS: list[tuple[Replica, Label]] = [
    (ended(a_replica(), 137, "OOMKilled"), MEMORY),
    (ended(a_replica(), 1, "OOMKilled"), MEMORY),
    (ended(a_replica(), 137, "Error"), ENDED),
    (ended(a_replica(), 143, "Error"), ENDED),
    (ended(a_replica(), 139, "Error"), ENDED),
    # Its own error. What a signal ends, or a runtime, is none.
    (ended(a_replica(), 2, "Error", "can't open file '/app/agent.py'"), FAILED),
    (
        ended(a_replica(), 1, "Error", "Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'"),
        FAILED,
    ),
    (ended(a_replica(), 70, "Error", "the process that ranks are forked from has died"), FAILED),
    (ended(a_replica(), 127, "Error", "sh: fetch-data: not found"), FAILED),
    (ended(a_replica(), 128, "Error"), ENDED),
    (ended(a_replica(), 0, "Completed"), ENDED),
    (ended(a_replica(), None, ""), ENDED),
    (ended(a_replica(), 78, "Error", "no TRAINMASTER_JOB"), WRONG),
    (ended(a_replica(), 75, "Error", "spec.training.code: https://host/a cannot be reached"), AWAY),
    (refused("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"), ENDED),
    (deleting(a_replica()), DELETED),
    (deleting(ended(a_replica(), 143)), DELETED),
    # Moved by the cluster. A container that dies of it is killed, with whatever code.
    (evicted(a_replica()), MOVED),
    (disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), MOVED),
    (disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"), MOVED),
    (disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), MOVED),
    (disrupted("DeletionByPodGC", "PodGC: node no longer exists"), MOVED),
    (disrupted("TerminationByKubelet", "The node was low on resource: memory. Threshold quantity: 100Mi."), MOVED),
    (disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."), MOVED),
    (disrupted("Evicted", "The node was low on resource: ephemeral-storage. Container trainer was using 34Ki."), MOVED),
    (disrupted("Evicted", "The node had condition: [DiskPressure]. "), MOVED),
    (disrupted("Preempting", "Preempted in order to admit critical pod"), MOVED),
    (disrupted("NodeShutdown", ending=None), MOVED),
    (disrupted("OutOfcpu", "Node didn't have enough resource: cpu, requested: 4000, used: 3900"), MOVED),
    (refused("NodeLost", "Node node-1 which was running pod digits-worker-1-0 is unresponsive"), MOVED),
    (refused("Terminated", "Pod was terminated in response to imminent node shutdown."), MOVED),
    (dataclasses.replace(ended(a_replica(), 137, "OOMKilled"), disruption="PreemptionByScheduler"), MOVED),
    # Evicted, but for its own excess.
    (disrupted("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. "), DISK),
    (disrupted("Evicted", 'Container trainer exceeded its local ephemeral storage limit "1Gi". '), DISK),
    (disrupted("TerminationByKubelet", 'Usage of EmptyDir volume "dshm" exceeds the limit "64Mi". '), DISK),
    # The node's runtime.
    (ended(a_replica(), 128, "StartError", f"{SHIM}context deadline exceeded: unknown"), WEATHER),
    (ended(a_replica(), 128, "StartError", f"{OCI}error during container init: error mounting: no such file"), WEATHER),
    (ended(a_replica(), 128, "StartError", f'{OCI}exec: "python3": executable file not found in $PATH'), WRONG),
    (ended(a_replica(), 128, "StartError", f'{OCI}exec: "/app/start.sh": permission denied: unknown'), WRONG),
    (ended(a_replica(), 128, "StartError", f"{OCI}exec /usr/bin/python3: exec format error"), WRONG),
    (ended(a_replica(), 128, "StartError", f"{OCI}exec /usr/bin/python3: argument list too long"), WRONG),
    (
        ended(a_replica(), 128, "StartError", "executable file `python3` not found in $PATH: No such file"),
        WRONG,
    ),  # crun
    (
        ended(a_replica(), 128, "StartError", f'{OCI}chdir to cwd ("/src") set in config.json failed: no such file'),
        WRONG,
    ),
    (
        ended(a_replica(), 128, "StartError", f"{OCI}nvidia-container-cli: initialization error: nvml error: driver"),
        DEVICE,
    ),
    (ended(a_replica(), 127, "ContainerCannotRun", "error while creating mount source path: read-only"), WEATHER),
    (ended(a_replica(), 137, "ContainerStatusUnknown", "The container could not be located"), WEATHER),
    (
        refused("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present; cannot allocate"),
        DEVICE,
    ),
    (refused("UnexpectedAdmissionError", "Update plugin resources failed: rpc error: code = Unavailable"), WEATHER),
    (refused("TopologyAffinityError", "Resources cannot be allocated with Topology locality"), WEATHER),
    (refused("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity"), WEATHER),
]
