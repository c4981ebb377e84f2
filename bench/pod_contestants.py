"""The two contestants of `bench pod_loss`: a TrainingJob, and a set of pods that is recreated whole."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.contestants import RANKS, notes_of
from bench.pod_cluster import MOUNTS, SCRIPT_IN_POD, VOLUMES, Document, Place, Seen, Watch
from tools.onebox.paths import TRAINER_IMAGE

STEPS = "100000000"  # until we end it
WIDTH = "128"
Phases = dict[str, float]  # seconds since the request to delete the pod

_PORT = "29500"
# Pod 0 tells its address by a file in the volume that both mount: sooner than any DNS.
_RENDEZVOUS = f"""
if [ "$INDEX" = 0 ]; then printf %s "$ADDRESS" > "$MEETING.new" && mv "$MEETING.new" "$MEETING"; fi
until [ -s "$MEETING" ]; do sleep 0.05; done
exec torchrun --nnodes={RANKS} --node-rank="$INDEX" --nproc-per-node=1 --max-restarts=0 \
    --master-addr="$(cat "$MEETING")" --master-port={_PORT} {SCRIPT_IN_POD} "$NOTES" {STEPS} {WIDTH}
"""
# As in our pods: torch asks for its peers' names, and a cluster without DNS must not cost ten seconds each time.
_NO_PATIENCE = {"options": [{"name": "timeout", "value": "1"}, {"name": "attempts", "value": "2"}]}
_CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_USER = {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}


class Contestant(Protocol):
    """What the measurement asks of both."""

    @property
    def notes(self) -> Path:
        """The folder of its notes, as this machine sees it."""

    def start(self) -> None:
        """Begin to train."""

    def lose(self, grace: int | None) -> tuple[float, Phases]:
        """Have a pod deleted, and see to it that training goes on: the time of the request, and what was seen."""

    def end(self) -> None:
        """Delete everything."""


@dataclass
class Job:
    """A TrainingJob: the operator replaces the pod, the other one waits."""

    place: Place
    name: str

    def __post_init__(self) -> None:
        self.notes = self.place.notes(self.name)

    def start(self) -> None:
        """Create it."""
        command = ["python3", SCRIPT_IN_POD, f"/notes/{self.name}", STEPS, WIDTH]
        workers = {"replicas": RANKS, "volumes": VOLUMES, "volumeMounts": MOUNTS}
        spec = {"strategy": {"type": "AllReduce"}, "training": {"command": command}, "workers": workers}
        kind = {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": self.name}}
        self.place.create_job({**kind, "spec": {**spec, "failurePolicy": {"maxRestarts": 100}}})

    def lose(self, grace: int | None) -> tuple[float, Phases]:
        """Delete the pod of worker 1."""
        (victim,) = [name for name in self.place.pods.living() if name.startswith(f"{self.name}-worker-1-")]
        requested = time.time()
        self.place.delete_pod(victim, grace)
        first, number = victim.rpartition("-")[::2]
        phases = _pod_phases(self.place.pods, requested, victim, [f"{first}-{int(number) + 1}"])
        ready = self.place.jobs.wait(requested, lambda seen: _phase(seen) == (self.name, "Starting"))
        return requested, {**phases, "agent ready": ready.time - requested}

    def end(self) -> None:
        """Delete it."""
        self.place.delete_job(self.name)


@dataclass
class WholeSet:
    """Plain pods with torchrun; when one is deleted, all are deleted and made anew, as a JobSet does.

    Kinder to itself than any controller: it sees the deletion at once, waits for no pod to end, and needs no DNS.
    """

    place: Place
    name: str
    generation: int = 0
    pods: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.notes = self.place.notes(self.name)

    def start(self) -> None:
        """Create all pods of the next generation."""
        self.generation += 1
        self.pods = [f"{self.name}-{self.generation}-{index}" for index in range(RANKS)]
        for index, pod in enumerate(self.pods):
            self.place.create_pod(self._manifest(pod, index))

    def lose(self, grace: int | None) -> tuple[float, Phases]:
        """Delete pod 1, then play the controller."""
        old, victim = self.pods, self.pods[1]
        requested = time.time()
        self.place.delete_pod(victim, grace)
        self.place.pods.wait(requested, lambda seen: seen.name == victim and seen.going)
        for pod in old[:1]:
            self.place.delete_pod(pod, 0)
        self.start()
        return requested, _pod_phases(self.place.pods, requested, victim, self.pods)

    def end(self) -> None:
        """Delete all."""
        for pod in self.pods:
            self.place.delete_pod(pod, 0)

    def _manifest(self, pod: str, index: int) -> Document:
        meeting = f"/notes/{self.name}/meeting-{self.generation}"
        values = {"INDEX": str(index), "NOTES": f"/notes/{self.name}", "MEETING": meeting, "OMP_NUM_THREADS": "1"}
        address = {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        container = {
            "name": "main",
            "image": TRAINER_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", _RENDEZVOUS],
            "env": [address, *({"name": name, "value": value} for name, value in values.items())],
            "securityContext": _CONFINED,
            "volumeMounts": MOUNTS,
        }
        spec = {"restartPolicy": "Never", "securityContext": _USER, "containers": [container], "volumes": VOLUMES}
        spec["dnsConfig"] = _NO_PATIENCE
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec}


def first_step(contestant: Contestant, since: float, limit: float = 180) -> float:
    """When the last rank ended the first step of a try that began after `since`.

    Raises:
        TimeoutError: a rank did not get there.
    """
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        firsts = [_first(contestant.notes, rank, since) for rank in range(RANKS)]
        found = [first for first in firsts if first is not None]
        if len(found) == RANKS:
            return max(found)
        time.sleep(0.1)
    raise TimeoutError(f"no step of all ranks in {contestant.notes}")


def _first(folder: Path, rank: int, since: float) -> float | None:
    return next((note.time for note in notes_of(folder, rank) if note.step == 1 and note.time > since), None)


def _pod_phases(pods: Watch, requested: float, victim: str, successors: list[str]) -> Phases:
    """When what was seen; of several pods, the last one."""

    def last(holds: str) -> float:
        return max(_when(pods, requested, name, holds) for name in successors) - requested

    seen = pods.wait(requested, lambda seen: seen.name == victim and seen.going).time - requested
    return {
        "delete seen": seen,
        "pod created": last("there"),
        "pod scheduled": last("scheduled"),
        "container started": last("started"),
    }


def _when(pods: Watch, since: float, name: str, holds: str) -> float:
    return pods.wait(since, lambda seen: seen.name == name and getattr(seen, holds)).time


def _phase(seen: Seen) -> tuple[str, str]:
    return seen.name, (seen.document.get("status") or {}).get("phase", "")
