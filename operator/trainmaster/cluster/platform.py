"""ClusterPlatform: the loop's `Platform` on Kubernetes. Sees through caches, acts through the client.

Called by the loop only; built by `hand`. Decides nothing: what should be done comes from the core.
"""

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cluster import defaults, jobs, manifests
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.client import BrokenError, Client, Document, RefusalError
from trainmaster.cluster.jobs import JobRecord
from trainmaster.cluster.manifests import PodSettings
from trainmaster.cluster.pods import PodRecord, owner_uid
from trainmaster.cluster.refusals import DELETION_REFUSED, INVALID, STATUS, Refusals, obstacle_of
from trainmaster.cluster.reporting import Reporter
from trainmaster.cluster.sightings import Sightings
from trainmaster.core import actions, phases, revision
from trainmaster.core.observed import Observed, Obstacle, Replica
from trainmaster.core.rules.obstacles import AGENT_SILENT, NAME_TAKEN, NAMESPACE_DEFAULTS
from trainmaster.intake import Intake
from trainmaster.loop import ConflictError, UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.messages import Orders

log = logging.getLogger("trainmaster.platform")

_CREATE = "create"  # with what these wishes begin
WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class ServiceRecord:
    """A headless Service, and whose it is."""

    job: Key
    job_uid: str


@dataclass(frozen=True)
class Caches:
    """What the platform sees through."""

    jobs: Cache[JobRecord]
    pods: Cache[PodRecord]
    services: Cache[ServiceRecord]
    synced: Callable[[str], bool]  # whether all of a namespace has been read


AnyCache = Cache[PodRecord] | Cache[ServiceRecord]


class ClusterPlatform:
    """`wake(key)` has the loop look at a job."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        intake: Intake,
        reporter: Reporter,
        settings: PodSettings,
        wake: Callable[[Key], None],
        leads: Callable[[], bool] = lambda: True,
        led_seconds: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._client = client
        self._caches = caches
        self._intake = intake
        self._reporter = reporter
        self._settings = settings
        self._wake = wake
        self._leads = leads
        self._led_seconds = led_seconds
        self._refusals = Refusals()
        self._sightings = Sightings()
        self._unsure: dict[Key, TrainingJob] = {}  # whose last status was not answered
        self.turned = time.monotonic()  # when the loop looked last
        self._began = 0.0  # when it looked first: agents call nobody but who is at work

    async def observe(self, key: Key) -> tuple[TrainingJob, Observed] | None:
        """The job and what exists of it, from memory; what became of an unanswered write is asked for first.

        Raises:
            UnavailableError: not everything has been read yet, or that cannot be asked now.
        """
        await self._until_leading()
        if not self._caches.synced(key.namespace):
            raise UnavailableError("not everything has been read from the API server yet")
        if key in self._unsure:
            await self._find_out(self._unsure[key])
            del self._unsure[key]
        self._began = self._began or time.time()
        record = self._caches.jobs.get(*key)
        if record and record.large:
            record = await self._read(record)
        if record is None:
            return None
        if isinstance(record.parsed, TrainingJob):
            if record.parsed.status.phase == phases.SUSPENDED:
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
        """Replace the whole status, if the job is still at the version that was observed."""
        if self._refusals.rests(job.uid, STATUS):
            raise UnavailableError("the API server refused the last status; waiting before the next try")
        operations: list[Document] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": job.metadata.resource_version},
            # Read back first: texts are clipped on the way in, and what we compare with later is what was stored.
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
            case actions.CreateService():
                await self._create(job, "services", manifests.service(job), self._caches.services)
            case actions.DeleteReplica(name=name, uid=uid):
                await self._delete_pod(job, name, uid)
            case actions.DeleteJob():
                await self._delete_job(job)

    async def _until_leading(self) -> None:
        """A leader that cannot renew its lease waits, and goes on where it was if nobody else has led meanwhile."""
        self.turned = time.monotonic()
        while not self._leads():
            await asyncio.sleep(WAIT_SECONDS)
            self.turned = time.monotonic()

    def forget(self, job_uid: str) -> None:
        """The job has gone."""
        self._refusals.forget(job_uid)
        self._sightings.forget(job_uid)

    def _observed(self, key: Key, job: TrainingJob) -> Observed:
        uid, private = job.uid, job.spec.checkpoint.storage is None
        seen = (self._seen(record) for record in self._caches.pods.group(key) if record.job_uid == uid)
        service = any(record.job_uid == uid for record in self._caches.services.group(key))
        return Observed(self._sightings.dated(uid, seen), service, self._refusals.of(uid), self._heard_since, private)

    @property
    def _heard_since(self) -> float:
        """Since when no agent has been turned away: nobody is to blame for what we did not want to hear."""
        return max(self._began, time.time() - self._led_seconds())

    def _seen(self, record: PodRecord) -> Replica:
        """With what its agent said. If that is nothing, and nothing else is known to be in its way, this is."""
        replica = self._intake.heard(record.replica)
        if replica.heartbeat or replica.obstacle or not record.started:
            return replica
        message = f"{replica.name} runs, but its agent has not called in at {self._settings.operator_url}"
        silent = Obstacle(AGENT_SILENT, message, max(record.started, self._heard_since))
        return dataclasses.replace(replica, obstacle=silent)

    async def _read(self, large: JobRecord) -> JobRecord | None:
        """Return the job as it is now, of which nothing is kept. What is kept may be older: nothing is lost by it."""
        try:
            document = await self._client.get(job_path(large.key))
        except RefusalError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise UnavailableError(str(error)) from error
            self._caches.jobs.unlearn(*large.key, large.uid)
            return None
        return jobs.read(document, jobs.MOST)

    async def _find_out(self, job: TrainingJob) -> None:
        """What the API server has by now."""
        try:
            self._caches.jobs.learn(await self._client.get(job_path(job)))
        except RefusalError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise UnavailableError(str(error)) from error
            self._caches.jobs.unlearn(job.namespace, job.name, job.uid)

    async def _status_refused(self, job: TrainingJob, error: RefusalError) -> None:
        """Bring the cache up to date, so that the next look is at what is really there."""
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
        """To whoever is still there: a pod may have gone since it was observed."""
        there = {record.replica.uid for record in self._caches.pods.group(Key(job.namespace, job.name))}
        for uid, order in orders:
            if uid in there:
                self._intake.give_orders(uid, order)

    async def _create_pod(self, job: TrainingJob, role: str, index: int, incarnation: int) -> None:
        try:
            pod = manifests.pod(job, role, index, incarnation, self._settings)
        except manifests.TemplateError as error:
            name = names.replica_name(job.name, role, index, incarnation)
            self._remember(job, _creation("pods", name), Obstacle(INVALID, str(error), name=name))
        else:
            await self._create(job, "pods", pod, self._caches.pods)

    async def _create(self, job: TrainingJob, kind: str, body: Document, cache: AnyCache) -> None:
        name = body["metadata"]["name"]
        wish = _creation(kind, name)
        if self._refusals.rests(job.uid, wish):
            return
        path = f"/api/v1/namespaces/{job.namespace}/{kind}"
        try:
            cache.learn(await self._client.post(path, body))
        except RefusalError as error:
            if error.reason == "Conflict":  # two writes met at a quota
                raise UnavailableError(str(error)) from error
            obstacle = await self._why_refused(job, f"{path}/{name}", cache, error)
            if obstacle and obstacle.reason == INVALID and defaults.are_to_blame(error.causes, body):
                obstacle = dataclasses.replace(obstacle, reason=NAMESPACE_DEFAULTS)
            if obstacle:
                self._remember(job, wish, dataclasses.replace(obstacle, name=name))
                return
        except BrokenError as error:
            self._remember(job, wish, dataclasses.replace(obstacle_of(error), name=name), hiccup=True)
            return
        self._refusals.granted(job.uid, wish)

    async def _why_refused(self, job: TrainingJob, path: str, cache: AnyCache, error: RefusalError) -> Obstacle | None:
        """None if it is there already, and ours."""
        if error.reason != "AlreadyExists":
            return obstacle_of(error)
        try:
            existing = await self._client.get(path)
        except RefusalError as gone:
            raise UnavailableError(f"it came and went: {gone}") from gone
        if owner_uid(existing) != job.uid:
            return Obstacle(NAME_TAKEN, f"{error.message}, and it does not belong to this job")
        if (existing["metadata"].get("labels") or {}).get(names.LABEL_JOB) != job.name:  # no watch of ours tells of it
            return Obstacle(NAME_TAKEN, f"{error.message}, and its label {names.LABEL_JOB} was edited")
        cache.learn(existing)
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
            elif error.status != HTTPStatus.CONFLICT:  # another pod has that name by now: ours has gone
                self._remember(job, wish, Obstacle(DELETION_REFUSED, error.message))
                return
        except BrokenError as error:
            self._remember(job, wish, Obstacle(DELETION_REFUSED, error.message), hiccup=True)
            return
        else:
            if answer.get("kind") == "Pod" and "deletionTimestamp" in answer["metadata"]:
                self._caches.pods.learn(answer)
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
        """And ask again later: nothing else may ever wake us for it. A job that has gone meanwhile wishes nothing."""
        record = self._caches.jobs.get(job.namespace, job.name)
        if record is None or record.uid != job.uid:
            return
        pause = self._refusals.remember(job.uid, wish, obstacle, revision=revision.of_all(job), hiccup=hiccup)
        asyncio.get_running_loop().call_later(pause, self._wake, Key(job.namespace, job.name))


def _creation(kind: str, name: str) -> str:
    return f"{_CREATE} {kind}/{name}"


def job_path(job: TrainingJob | Key) -> str:
    """Where the API server has this job."""
    return f"/apis/{names.API_VERSION}/namespaces/{job.namespace}/{names.PLURAL}/{job.name}"
