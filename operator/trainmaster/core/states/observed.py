"""Define what a platform saw at one moment: the input of `decide` beside the job itself."""

from dataclasses import dataclass
from enum import StrEnum

from trainmaster.api.policies import Storage
from trainmaster.wire import messages


class ReplicaPhase(StrEnum):
    """The phase of a replica, as Kubernetes names that of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


# An agent whose request is held for 2 seconds, as in most operators, is silent after this many. One that is silent does
# not count as ready while the group gathers; `unreachable` says when it is lost.
SILENT_SECONDS = 10.0
# Where there are so many agents that requests are held for longer (intake.py), it is silent so long after its answer.
SILENT_AFTER_ANSWER_SECONDS = 8.0
# Kinds of objects that a job has beside its replicas (situation/objects.py).
SERVICE, NETWORK_POLICY = "Service", "NetworkPolicy"


@dataclass(frozen=True)
class Obstacle:
    """Hold why a replica does not start, or why an action was refused: a CamelCase reason and a sentence.

    `since` is in seconds since the epoch: since when, where the platform can tell. `name` is that of the replica that
    could not be created, where it is about one. `container` is the container that waits, where it is one.
    """

    reason: str
    message: str
    since: float | None = None
    name: str = ""
    container: str = ""


@dataclass(frozen=True)
class Ending:
    """Hold how a replica (not a rank) ended: its container's exit code, and the platform's reason and message.

    `container` is the one that ended, where it is not the one that trains: an init container, which runs before it.
    `suspect` is a clause on what the platform may have ended it for without telling.
    """

    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    container: str = ""
    suspect: str = ""


@dataclass(frozen=True)
class Replica:
    """A replica is one pod, or one agent process. Times are seconds since the epoch."""

    role: str
    index: int
    incarnation: int
    name: str
    uid: str
    phase: ReplicaPhase
    created: float
    address: str = ""
    node: str = ""
    deleting: bool = False
    disruption: str = ""  # reason of a DisruptionTarget condition, Evicted, Preempted ...; empty: none
    disruption_message: str = ""  # the cluster's own words for it
    ending: Ending | None = None
    obstacle: Obstacle | None = None
    heartbeat: messages.Heartbeat | None = None
    silent_seconds: float = 0.0  # since its agent's last heartbeat
    hold_seconds: float = 0.0  # for how long its request is held, or was held last
    node_silent: bool = False  # the platform says that its node does not answer any more
    revision: str = ""  # of the spec that it was made of (revision.py); empty: not known
    short_of_devices: bool = False  # its machine has fewer than the job asks for, so that it was given none
    kept_by: str = ""  # the container that still runs in it, though its training has ended; empty: none

    @property
    def alive(self) -> bool:
        """Return whether it may still train: neither ended nor being deleted."""
        return self.phase in (ReplicaPhase.PENDING, ReplicaPhase.RUNNING) and not self.deleting

    @property
    def reporting(self) -> messages.Heartbeat | None:
        """Return the last heartbeat where the replica runs; else None."""
        return self.heartbeat if self.alive and self.phase == ReplicaPhase.RUNNING else None

    @property
    def silent(self) -> bool:
        """Return whether its agent has been silent for longer than an agent ever is: its node may be lost."""
        return self.silent_seconds > silent_after(self.hold_seconds)


def silent_after(hold_seconds: float) -> float:
    """Return after how many seconds an agent is silent whose request is held for so long."""
    return max(SILENT_SECONDS, hold_seconds + SILENT_AFTER_ANSWER_SECONDS)


@dataclass(frozen=True)
class Observed:
    """Hold all that exists of one job. `refused` is what the platform answered to the last actions, newest last.

    `began` is since when this operator has heard agents, in seconds since the epoch; 0: always. With
    `private_checkpoints` each replica has only those that it saved, and they are lost with it. `default_storage` is
    what the administrator gives to jobs that name no storage. `objects` are the kinds of which the job has an object
    beside its replicas, `kinds` those that the platform makes for it. `refresh_seconds` is how often the progress is
    written while it trains.
    """

    replicas: tuple[Replica, ...] = ()
    objects: frozenset[str] = frozenset()
    refused: tuple[Obstacle, ...] = ()
    began: float = 0.0
    private_checkpoints: bool = False
    default_storage: Storage | None = None
    kinds: frozenset[str] = frozenset({SERVICE})
    refresh_seconds: float = 10.0  # often enough for `kubectl get -w`, seldom enough for a thousand jobs
