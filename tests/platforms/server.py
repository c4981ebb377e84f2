"""A simulated API server: objects with versions, conflicts, uids, owners, and everybody who watches it.

It answers at once and without fault; delays and faults are added by whoever stands between it and the caller
(`simulated.py`), so that what really happened is always known here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.states.observed import SERVICE, Obstacle, Replica, ReplicaPhase
from trainmaster.queueing import Key


class ServerError(Exception):
    """The server's answer is no."""


class NotFoundError(ServerError):
    """There is no such object, or it is another one."""


class AlreadyExistsError(ServerError):
    """The name is taken."""


class StaleError(ServerError):
    """The object is not what the caller thinks it is."""


class RefusedError(ServerError):
    """A quota or a policy is against it."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.message)
        self.obstacle = obstacle


@dataclass(frozen=True)
class Pod:
    """A pod as it is stored."""

    owner: Key
    owner_uid: str
    replica: Replica
    version: int = 0


Stored = TrainingJob | Pod | str  # the string is another object's job


@dataclass(frozen=True)
class Change:
    """One event of a watch. `value` is None where the object has gone."""

    version: int
    name: tuple[str, str]  # kind, name
    value: Stored | None


@dataclass
class ApiServer:
    """All that is stored, and who is told."""

    now: Callable[[], float]
    version: int = 1
    jobs: dict[Key, TrainingJob] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset({SERVICE})  # of the objects that operators make beside pods
    objects: set[tuple[str, Key]] = field(default_factory=set)  # kind, job
    watchers: list[Callable[[Change], None]] = field(default_factory=list)
    refuses: Obstacle | None = None  # the answer to whoever creates a pod

    # Jobs.

    def create_job(self, job: TrainingJob) -> TrainingJob:
        """A user applies a job."""
        key = Key(job.namespace, job.name)
        if key in self.jobs:
            raise AlreadyExistsError(str(key))
        created = datetime.fromtimestamp(int(self.now()), UTC).isoformat()  # as Kubernetes does it: whole seconds
        metadata = {"metadata": _with(job, creation_timestamp=created)}
        return self._store_job(key, job.model_copy(update=metadata))

    def edit_job(self, key: Key, spec: dict[str, object]) -> TrainingJob:
        """A user edits the spec (snake_case); without members: only an annotation."""
        job = self._job(key)
        generation = job.metadata.generation + (1 if spec else 0)
        update = {"spec": job.spec.model_copy(update=spec), "metadata": _with(job, generation=generation)}
        return self._store_job(key, job.model_copy(update=update))

    def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> TrainingJob:
        """Only if the job is still at the version that `job` has."""
        key = Key(job.namespace, job.name)
        stored = self._job(key, job.uid)
        if stored.metadata.resource_version != job.metadata.resource_version:
            raise StaleError(f"{key} is at {stored.metadata.resource_version}")
        read_back = TrainingJobStatus.read(status.to_dict())
        return self._store_job(key, stored.model_copy(update={"status": read_back}))

    def delete_job(self, key: Key, uid: str) -> None:
        """The job and what it owns: pods are given their time to end."""
        self._job(key, uid)
        del self.jobs[key]
        self._tell(("job", str(key)), None)
        for kind, owner in [one for one in sorted(self.objects) if one[1] == key]:
            self.delete_object(kind, owner)
        for name, pod in list(self.pods.items()):
            if pod.owner_uid == uid:
                self.delete_pod(name, pod.replica.uid)

    # Objects of which a job has one of a kind.

    def create_object(self, kind: str, key: Key) -> Change:
        """As the headless Service of a job."""
        if (kind, key) in self.objects:
            raise AlreadyExistsError(str(key))
        self.objects.add((kind, key))
        return self._tell((kind, str(key)), str(key))

    def delete_object(self, kind: str, key: Key) -> Change:
        """It is gone at once."""
        if (kind, key) not in self.objects:
            raise NotFoundError(str(key))
        self.objects.discard((kind, key))
        return self._tell((kind, str(key)), None)

    # Pods.

    def create_pod(self, owner: TrainingJob, replica: Replica) -> Pod:
        """A pod that nobody has looked at yet."""
        if replica.name in self.pods:
            raise AlreadyExistsError(replica.name)
        if self.refuses:
            raise RefusedError(self.refuses)
        self._job(Key(owner.namespace, owner.name), owner.uid)  # else the garbage collector ends it at once
        self.version += 1
        made = dataclasses.replace(
            replica, uid=f"{replica.name}@{self.version}", created=self.now(), phase=ReplicaPhase.PENDING
        )
        return self._store_pod(Pod(Key(owner.namespace, owner.name), owner.uid, made))

    def update_pod(self, name: str, uid: str, **changes: object) -> Pod:
        """Scheduler and kubelet report."""
        pod = self._pod(name, uid)
        changed = dataclasses.replace(pod.replica, **changes)  # type: ignore[arg-type]
        return pod if changed == pod.replica else self._store_pod(dataclasses.replace(pod, replica=changed))

    def delete_pod(self, name: str, uid: str) -> Pod:
        """Mark it; the kubelet ends it and calls `remove_pod`."""
        return self.update_pod(name, uid, deleting=True)

    def remove_pod(self, name: str, uid: str) -> None:
        """It is gone."""
        self._pod(name, uid)
        del self.pods[name]
        self._tell(("pod", name), None)

    def pods_of(self, key: Key) -> list[Replica]:
        """All pods of a job, by name."""
        return [pod.replica for _, pod in sorted(self.pods.items()) if pod.owner == key]

    def _job(self, key: Key, uid: str = "") -> TrainingJob:
        job = self.jobs.get(key)
        if job is None or (uid and job.uid != uid):
            raise NotFoundError(str(key))
        return job

    def _pod(self, name: str, uid: str) -> Pod:
        pod = self.pods.get(name)
        if pod is None or pod.replica.uid != uid:
            raise NotFoundError(name)
        return pod

    def _store_job(self, key: Key, job: TrainingJob) -> TrainingJob:
        stored = job.model_copy(update={"metadata": _with(job, resource_version=str(self.version + 1))})
        self.jobs[key] = stored
        self._tell(("job", str(key)), stored)
        return stored

    def _store_pod(self, pod: Pod) -> Pod:
        stored = dataclasses.replace(pod, version=self.version + 1)
        self.pods[pod.replica.name] = stored
        self._tell(("pod", pod.replica.name), stored)
        return stored

    def _tell(self, name: tuple[str, str], value: Stored | None) -> Change:
        self.version += 1
        change = Change(self.version, name, value)
        for watcher in list(self.watchers):
            watcher(change)
        return change


def _with(job: TrainingJob, **metadata: object) -> object:
    return job.metadata.model_copy(update=metadata)
