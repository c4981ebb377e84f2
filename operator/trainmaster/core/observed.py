"""What a platform saw at one moment: the input of `decide` beside the job itself.

Built by the hands (cluster/, local/, the simulated platform of the tests); read by the rules.
"""

from dataclasses import dataclass

from trainmaster.wire import messages

# Phases of a replica, as Kubernetes names those of a pod.
PENDING = "Pending"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

# An agent speaks every 2 seconds, those of the largest jobs every 7 (intake.py). One that has been silent for longer
# than this, in seconds, is not counted on where somebody is waited for anyway; `unreachable` says when it is lost.
SILENT_SECONDS = 10.0


@dataclass(frozen=True)
class Obstacle:
    """Why a replica does not start, or why a wish of ours was refused: a CamelCase reason and a sentence.

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
    """How a replica (not a rank) ended: its container's exit code, and the platform's reason and message.

    `container` is the one that ended, where it is not the one that trains: an init container, which runs before it.
    """

    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    container: str = ""


@dataclass(frozen=True)
class Replica:
    """One pod, or one agent process. Times are seconds since the epoch."""

    role: str
    index: int
    incarnation: int
    name: str
    uid: str
    phase: str
    created: float
    address: str = ""
    node: str = ""
    deleting: bool = False
    disruption: str = ""  # reason of a DisruptionTarget condition, Evicted, Preempted ...; empty: none
    disruption_message: str = ""  # the cluster's own words for it
    ending: Ending | None = None
    obstacle: Obstacle | None = None
    heartbeat: messages.Heartbeat | None = None
    silent_seconds: float = 0.0  # since its agent's last word
    node_silent: bool = False  # the platform says that its node does not answer any more
    revision: str = ""  # what the spec said of it when it was made (revision.py); empty: it does not say
    lingering: bool = False  # it has ended as far as training goes, but something beside it still holds its place

    @property
    def alive(self) -> bool:
        """Whether it still may train: neither ended nor on its way out."""
        return self.phase in (PENDING, RUNNING) and not self.deleting

    @property
    def reporting(self) -> messages.Heartbeat | None:
        """The last heartbeat, if the replica is up."""
        return self.heartbeat if self.alive and self.phase == RUNNING else None

    @property
    def silent(self) -> bool:
        """Whether its node may have gone, though nobody has said so."""
        return self.silent_seconds > SILENT_SECONDS


@dataclass(frozen=True)
class Observed:
    """All that exists of one job. `refused` is what the platform answered to our last wishes, newest last.

    `began` is since when agents are heard, in seconds since the epoch; 0 where that has always been so. With
    `private_checkpoints` each replica has those that it saved, and nobody has them when it is gone.
    """

    replicas: tuple[Replica, ...] = ()
    service: bool = False
    refused: tuple[Obstacle, ...] = ()
    began: float = 0.0
    private_checkpoints: bool = False
