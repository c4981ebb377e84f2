"""Implement the loop's `Platform` on Kubernetes: observe through caches, act through the client.

It decides nothing: the core decides what should be done.
"""

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cluster import defaults, jobs, manifests
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.client import BrokenError, Client, Document, RefusalError
from trainmaster.cluster.job_objects import TABLE, Known, ObjectRecord, Remembered, Watched
from trainmaster.cluster.jobs import JobRecord
from trainmaster.cluster.manifests import PodSettings
from trainmaster.cluster.obstacle_times import ObstacleTimes
from trainmaster.cluster.pod_maker import PodMaker
from trainmaster.cluster.pod_reading import PodRecord, owner_uid
from trainmaster.cluster.refusals import DELETION_REFUSED, INVALID, STATUS, Refusals, obstacle_of
from trainmaster.cluster.reporting import EventReporter
from trainmaster.core.situation import revision
from trainmaster.core.situation.objects import KINDS
from trainmaster.core.situation.obstacles import AGENT_SILENT, NAME_TAKEN, NAMESPACE_DEFAULTS
from trainmaster.core.states import actions
from trainmaster.core.states.observed import Observed, Obstacle, Replica
from trainmaster.intake import Intake
from trainmaster.loop import ConflictError, UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.messages import Orders

log = logging.getLogger("trainmaster.platform")

_LARGE_AT_ONCE = 4  # large jobs that are read: each takes several times its text for a moment
_CREATE = "create"  # wishes to create something begin with this
WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Caches:
    """Hold the caches that the platform observes through."""

    jobs: Cache[JobRecord]
    pods: Cache[PodRecord]
    objects: Mapping[str, Cache[ObjectRecord]]  # by kind
    synced: Callable[[str], bool]  # whether all of a namespace has been read


class ClusterPlatform:
    """Observe and act for the loop on a cluster. `wake(key)` has the loop look at a job."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        intake: Intake,
        reporter: EventReporter,
        settings: PodSettings,
        wake: Callable[[Key], None],
        leads: Callable[[], bool] = lambda: True,
        led_seconds: Callable[[], float] = lambda: math.inf,
        on_status: Callable[[TrainingJobStatus, TrainingJobStatus], None] = lambda *_: None,
    ) -> None:
        self._client = client
        self._caches = caches
        self._intake = intake
        self._reporter = reporter
        self._settings = settings
        self._pods = PodMaker(settings)
        self._wake = wake
        self._leads = leads
        self._led_seconds = led_seconds
        self._on_status = on_status  # told of each status that was written: the one before it, and itself
        self._refusals = Refusals()
        self._sightings = ObstacleTimes()
        self._remembered = {kind: Remembered(wake) for kind, row in TABLE.items() if not row.watched}
        self._objects: dict[str, Known] = {kind: Watched(cache) for kind, cache in caches.objects.items()}
        self._objects |= self._remembered
        self._kinds = frozenset(kind for kind in self._objects if TABLE[kind].enabled(settings))
        self._unsure: dict[Key, TrainingJob] = {}  # jobs whose last status write was not answered
        self._large_ones = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.turned = time.monotonic()  # when the loop looked last
        self._began = 0.0  # when it looked first, in seconds since the epoch

    async def observe(self, key: Key) -> tuple[TrainingJob, Observed] | None:
        """Return the job and what exists of it, from memory; None if it is gone or cannot be parsed.

        After a status write that was not answered, the job is read from the API server first.

        Raises:
            UnavailableError: not everything has been read yet, or the API server cannot be asked now.
        """
        # The loop goes on where it was once this operator leads.
        self.turned = time.monotonic()
        while not self._leads():
            await asyncio.sleep(WAIT_SECONDS)
            self.turned = time.monotonic()
        if not self._caches.synced(key.namespace):
            raise UnavailableError("not everything has been read from the API server yet")
        if key in self._unsure:
            # The cache has to have the job as the API server has it now.
            job = self._unsure[key]
            try:
                self._caches.jobs.learn(await self._client.get(job_path(job)))
            except RefusalError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise UnavailableError(str(error)) from error
                self._caches.jobs.unlearn(job.namespace, job.name, job.uid)
            del self._unsure[key]
        self._began = self._began or time.time()
        record = self._caches.jobs.get(*key)
        if record and record.large:
            async with self._large_ones:
                return await self._look(key, await self._read(record))
        return await self._look(key, record)

    async def _look(self, key: Key, record: JobRecord | None) -> tuple[TrainingJob, Observed] | None:
        if record is None:
            return None
        if isinstance(record.parsed, TrainingJob):
            if record.parsed.status.phase == Phase.SUSPENDED:
                self._refusals.withdraw(record.uid, _CREATE)
            if record.uid in self._refusals:
                self._refusals.withdraw_older(record.uid, _CREATE, revision.of_all(record.parsed))
            return record.parsed, self._observed(key, record.parsed)
        report = jobs.invalid(record, record.parsed)
        if report is not None:
            await self.write_status(record.stand_in, report[0])
            self._reporter.post(record.stand_in, report[1])
        return None

    async def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> None:
        """Replace the whole status, if the job still has the version that was observed.

        Raises:
            ConflictError: it has another version, or is gone.
            UnavailableError: the status cannot be written now.
        """
        if self._refusals.rests(job.uid, STATUS):
            raise UnavailableError("the API server refused the last status; waiting before the next try")
        operations: list[Document] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": job.metadata.resource_version},
            # Reading it back clips long texts: later decisions compare with what was stored.
            {"op": "add", "path": "/status", "value": TrainingJobStatus.read(status.to_dict()).to_dict()},
        ]
        try:
            written = await self._client.json_patch(f"{job_path(job)}/status", operations)
        except RefusalError as error:
            await self._status_refused(job, error)
            raise ConflictError(str(error)) from error
        except UnavailableError:
            self._unsure[Key(job.namespace, job.name)] = job
            raise
        self._refusals.granted(job.uid, STATUS)
        self._caches.jobs.learn(written)
        self._on_status(job.status, status)

    async def apply(self, job: TrainingJob, action: actions.Action) -> None:
        """Carry out one action."""
        match action:
            case actions.GiveOrders() if not self._leads():
                raise UnavailableError("orders are the leader's to give")
            case actions.GiveOrders(orders=orders):
                self._give_orders(job, orders)
            case actions.PostEvent():
                self._reporter.post(job, action)
            case actions.CreateReplica(role=role, index=index, incarnation=incarnation):
                await self._create_pod(job, role, index, incarnation)
            case actions.EnsureObject(kind=kind):
                row, known = TABLE[kind], self._objects[kind]
                in_all_ways = KINDS[kind].before_replicas  # a refusal keeps each replica from being made
                await self._create(
                    job, row.resource, row.manifest(job), known, taken=row.taken, in_all_ways=in_all_ways
                )
            case actions.DeleteObject(kind=kind):
                await self._delete_object(job, kind)
            case actions.DeleteReplica(name=name, uid=uid):
                await self._delete_pod(job, name, uid)
            case actions.DeleteJob():
                await self._delete_job(job)

    def forget(self, job_uid: str) -> None:
        """Forget what is remembered of a job that is deleted."""
        self._refusals.forget(job_uid)
        self._sightings.forget(job_uid)
        for remembered in self._remembered.values():
            remembered.forget_job(job_uid)

    def _observed(self, key: Key, job: TrainingJob) -> Observed:
        uid, private = job.uid, job.spec.checkpoint.storage is None
        seen = (self._seen(record) for record in self._caches.pods.group(key) if record.job_uid == uid)
        return Observed(
            self._sightings.dated(uid, seen),
            frozenset(kind for kind, known in self._objects.items() if known.has(job)),
            self._refusals.obstacles(uid),
            self._heard_since,
            private,
            self._settings.default_storage,
            self._kinds,
        )

    @property
    def _heard_since(self) -> float:
        """Return since when, in seconds since the epoch, agents can reach us. Earlier silence is not their fault."""
        return max(self._began, time.time() - self._led_seconds())

    def _seen(self, record: PodRecord) -> Replica:
        """Return a replica with its last heartbeat.

        If it runs without one and has no other obstacle, its obstacle is AGENT_SILENT.
        """
        replica = self._intake.heard(record.replica)
        if replica.heartbeat or replica.obstacle or not record.started:
            return replica
        message = f"{replica.name} runs, but its agent has not called in at {self._settings.operator_url}"
        silent = Obstacle(AGENT_SILENT, message, max(record.started, self._heard_since))
        return dataclasses.replace(replica, obstacle=silent)

    async def _read(self, large: JobRecord) -> JobRecord | None:
        """Return a large job, of which no text is kept, as it is now; None if it is gone.

        It may be newer than the cache.
        """
        try:
            document = await self._client.get(job_path(large.key))
        except RefusalError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise UnavailableError(str(error)) from error
            self._caches.jobs.unlearn(*large.key, large.uid)
            return None
        return jobs.read(document, jobs.MOST)

    async def _status_refused(self, job: TrainingJob, error: RefusalError) -> None:
        """Bring the cache up to date after a refused status, so that the loop next observes what is really there.

        Raises:
            UnavailableError: the refusal has another cause than a changed or deleted job.
        """
        if error.status == HTTPStatus.CONFLICT:
            try:
                self._caches.jobs.learn(await self._client.get(job_path(job)))
            except RefusalError as gone:
                error = gone
            else:
                return
        if error.status == HTTPStatus.NOT_FOUND:
            self._caches.jobs.unlearn(job.namespace, job.name, job.uid)
            return
        self._remember(job, STATUS, obstacle_of(error))
        log.error("%s/%s: the status cannot be written: %s", job.namespace, job.name, error)
        raise UnavailableError(f"the status cannot be written: {error}") from error

    def _give_orders(self, job: TrainingJob, orders: tuple[tuple[str, Orders], ...]) -> None:
        """Give orders to replicas whose pods still exist: a pod may have gone since it was observed."""
        there = {record.replica.uid for record in self._caches.pods.group(Key(job.namespace, job.name))}
        for uid, order in orders:
            if uid in there:
                self._intake.give_orders(uid, order)

    async def _create_pod(self, job: TrainingJob, role: str, index: int, incarnation: int) -> None:
        try:
            pod = self._pods.pod(job, role, index, incarnation)
        except manifests.TemplateError as error:
            name = names.replica_name(job.name, role, index, incarnation)
            self._remember(job, _creation("pods", name), Obstacle(INVALID, str(error), name=name))
        else:
            await self._create(job, "pods", pod, self._caches.pods)

    async def _create(
        self,
        job: TrainingJob,
        kind: str,
        body: Document,
        known: Cache[PodRecord] | Known,
        *,
        taken: str = NAME_TAKEN,
        in_all_ways: bool = False,
    ) -> None:
        name = body["metadata"]["name"]
        wish = _creation(kind, name)
        if self._refusals.rests(job.uid, wish):
            return
        version = body["apiVersion"]
        path = f"/{'api' if version == 'v1' else 'apis'}/{version}/namespaces/{job.namespace}/{kind}"
        told_of = "" if in_all_ways else name
        try:
            known.learn(await self._client.post(path, body))
        except RefusalError as error:
            if error.reason == "Conflict":  # another write changed the quota at the same time
                raise UnavailableError(str(error)) from error
            obstacle = await self._why_refused(job, f"{path}/{name}", known, error, taken)
            if obstacle and obstacle.reason == INVALID and defaults.are_to_blame(error.causes, body):
                obstacle = dataclasses.replace(obstacle, reason=NAMESPACE_DEFAULTS)
            if obstacle:
                self._remember(job, wish, dataclasses.replace(obstacle, name=told_of))
                return
        except BrokenError as error:
            self._remember(job, wish, dataclasses.replace(obstacle_of(error), name=told_of), hiccup=True)
            return
        self._refusals.granted(job.uid, wish)

    async def _why_refused(
        self, job: TrainingJob, path: str, known: Cache[PodRecord] | Known, error: RefusalError, taken: str
    ) -> Obstacle | None:
        """Return the obstacle behind a refused creation; None if the object exists already and belongs to the job."""
        if error.reason != "AlreadyExists":
            return obstacle_of(error)
        try:
            existing = await self._client.get(path)
        except RefusalError as gone:
            raise UnavailableError(f"it came and went: {gone}") from gone
        if owner_uid(existing) != job.uid:
            return Obstacle(taken, f"{error.message}, and it does not belong to this job")
        if (existing["metadata"].get("labels") or {}).get(names.LABEL_JOB) != job.name:  # our watches select by it
            return Obstacle(NAME_TAKEN, f"{error.message}, and its label {names.LABEL_JOB} was edited")
        known.learn(existing)
        return None

    async def _delete_pod(self, job: TrainingJob, name: str, uid: str) -> None:
        wish = f"delete {name}"
        if self._refusals.rests(job.uid, wish):
            return
        try:
            answer = await self._client.delete(f"/api/v1/namespaces/{job.namespace}/pods/{name}", uid)
        except RefusalError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                self._caches.pods.unlearn(job.namespace, name, uid)
            elif error.status != HTTPStatus.CONFLICT:  # another pod has that name now, so ours is gone
                self._remember(job, wish, Obstacle(DELETION_REFUSED, error.message))
                return
        except BrokenError as error:
            self._remember(job, wish, Obstacle(DELETION_REFUSED, error.message), hiccup=True)
            return
        else:
            if answer.get("kind") == "Pod" and "deletionTimestamp" in answer["metadata"]:
                self._caches.pods.learn(answer)
        self._refusals.granted(job.uid, wish)

    async def _delete_object(self, job: TrainingJob, kind: str) -> None:
        """Delete the job's object of this kind, and nobody else's of the same name."""
        row = TABLE[kind]
        wish, path = f"delete {row.resource}", f"{row.api}/namespaces/{job.namespace}/{row.resource}/{job.name}"
        if self._refusals.rests(job.uid, wish):
            return
        try:
            there = await self._client.get(path)
            if owner_uid(there) == job.uid:
                await self._client.delete(path, there["metadata"]["uid"])
        except RefusalError as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):  # it is gone, or another has its name
                self._remember(job, wish, Obstacle(DELETION_REFUSED, error.message))
                return
        except BrokenError as error:
            self._remember(job, wish, Obstacle(DELETION_REFUSED, error.message), hiccup=True)
            return
        self._objects[kind].forget(job)
        self._refusals.granted(job.uid, wish)

    async def _delete_job(self, job: TrainingJob) -> None:
        try:
            await self._client.delete(job_path(job), job.uid, propagationPolicy="Background")
        except RefusalError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                self._caches.jobs.unlearn(job.namespace, job.name, job.uid)
            elif error.status != HTTPStatus.CONFLICT:
                raise UnavailableError(f"the job cannot be deleted: {error}") from error

    def _remember(self, job: TrainingJob, wish: str, obstacle: Obstacle, *, hiccup: bool = False) -> None:
        """Remember a refusal, and wake the loop when its pause is over. This does nothing if the job is gone."""
        record = self._caches.jobs.get(job.namespace, job.name)
        if record is None or record.uid != job.uid:
            return
        pause = self._refusals.remember(job.uid, wish, obstacle, revision=revision.of_all(job), hiccup=hiccup)
        asyncio.get_running_loop().call_later(pause, self._wake, Key(job.namespace, job.name))


def _creation(kind: str, name: str) -> str:
    return f"{_CREATE} {kind}/{name}"


def job_path(job: TrainingJob | Key) -> str:
    """Return the job's path on the API server."""
    return f"/apis/{names.API_VERSION}/namespaces/{job.namespace}/{names.PLURAL}/{job.name}"
