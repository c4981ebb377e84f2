"""Make the objects that a job has beside its pods, and know which are there: a row per kind.

Which of them a job should have is decided in core/situation/objects.py. Another kind is a row here and a row there, and
its rights in the chart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from trainmaster.api.job import TrainingJob
from trainmaster.cluster import isolation, manifests
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.container import PodSettings
from trainmaster.cluster.pod_reading import owner_uid
from trainmaster.core.situation.obstacles import NAME_TAKEN, POLICY_TAKEN
from trainmaster.core.states.observed import NETWORK_POLICY, SERVICE
from trainmaster.queueing import Key
from trainmaster.wire import names

Document = dict[str, Any]


@dataclass(frozen=True)
class ObjectKind:
    """Hold what the API server must be told of one kind."""

    api: str  # the path of its group and version
    resource: str
    manifest: Callable[[TrainingJob], Document]
    watched: bool = True  # else the operator only remembers what it has made or met
    taken: str = NAME_TAKEN  # the obstacle where a foreign object has the name
    enabled: Callable[[PodSettings], bool] = lambda _: True  # whether this operator makes them


TABLE = {
    SERVICE: ObjectKind("/api/v1", "services", manifests.service),
    # Policies are not watched: that would take a right on those of all others. One that somebody deletes is made again
    # by the next operator that makes a pod of the job.
    NETWORK_POLICY: ObjectKind(
        "/apis/networking.k8s.io/v1",
        "networkpolicies",
        isolation.policy,
        watched=False,
        taken=POLICY_TAKEN,
        enabled=lambda settings: settings.network_policy,
    ),
}


@dataclass(frozen=True)
class ObjectRecord:
    """Hold whose an object is."""

    job: Key
    job_uid: str


def read(document: Document) -> ObjectRecord:
    """Return what a cache keeps of an object."""
    metadata = document["metadata"]
    name = (metadata.get("labels") or {}).get(names.LABEL_JOB, "")
    return ObjectRecord(Key(metadata.get("namespace", ""), name), owner_uid(document))


class Known(Protocol):
    """Tell which jobs have their object of one kind."""

    def has(self, job: TrainingJob) -> bool:
        """Return whether the job has it."""

    def learn(self, document: Document) -> None:
        """Note an object that is there."""

    def forget(self, job: TrainingJob) -> None:
        """Note that the job's object is not there."""


class Watched:
    """Watched asks a cache that an informer keeps."""

    def __init__(self, cache: Cache[ObjectRecord]) -> None:
        self._cache = cache

    def has(self, job: TrainingJob) -> bool:
        """Return whether the job has it."""
        return any(record.job_uid == job.uid for record in self._cache.group(Key(job.namespace, job.name)))

    def learn(self, document: Document) -> None:
        """Note an object that is there."""
        self._cache.learn(document)

    def forget(self, job: TrainingJob) -> None:
        """Leave it to the watch, which tells of deletions."""


class Remembered:
    """Remembered keeps the jobs whose object was made or met. `wake` has the loop look again, as no watch would."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._jobs: set[str] = set()

    def has(self, job: TrainingJob) -> bool:
        """Return whether the job has it."""
        return job.uid in self._jobs

    def learn(self, document: Document) -> None:
        """Note an object that is there."""
        self._jobs.add(owner_uid(document))
        self._wake(read(document).job)

    def forget(self, job: TrainingJob) -> None:
        """Note that the job's object is not there."""
        self.forget_job(job.uid)
        self._wake(Key(job.namespace, job.name))

    def forget_job(self, uid: str) -> None:
        """Forget a job that is deleted."""
        self._jobs.discard(uid)
