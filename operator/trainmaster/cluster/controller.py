"""Put the parts of the Kubernetes platform together and run them: caches, intake, loop, probes.

The loop starts after everything has been read once. From then on heartbeats are accepted, also while the API server
cannot be reached.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster import loop
from trainmaster.api.problem import reason
from trainmaster.cluster import job_objects, jobs, pod_reading
from trainmaster.cluster.api_connection import ApiConnection, bracketed
from trainmaster.cluster.cache import Cache, Document
from trainmaster.cluster.client import Client
from trainmaster.cluster.cluster_platform import Caches, ClusterPlatform
from trainmaster.cluster.informer import Informer
from trainmaster.cluster.job_objects import ObjectRecord
from trainmaster.cluster.job_sweep import Sweep
from trainmaster.cluster.jobs import JobRecord
from trainmaster.cluster.lease import LOOK_SECONDS, ClusterStore, Lease, LostError, an_identity
from trainmaster.cluster.lease_thread import LeaseThread
from trainmaster.cluster.manifests import PodSettings
from trainmaster.cluster.metrics.instruments import Instruments, TimedReconciler
from trainmaster.cluster.metrics.page import MetricsPage
from trainmaster.cluster.pod_reading import PodRecord
from trainmaster.cluster.reachability import Reachability
from trainmaster.cluster.reporting import EventReporter
from trainmaster.cluster.swept_cache import SweptCache
from trainmaster.cluster.tokens import Keys, Verifier
from trainmaster.intake import Intake
from trainmaster.listening.limits import Limits
from trainmaster.listening.listener import Listener
from trainmaster.queueing import Key, WorkQueue
from trainmaster.wire import names

log = logging.getLogger("trainmaster.controller")

# The loop looks at every job this often, even if nothing happened, in case an event was lost.
SWEEP_SECONDS = 300.0
# If the loop has work and has looked at no job for so long, it is stuck.
STUCK_SECONDS = 120.0
# Connections of those who need no token: the kubelet, and whoever scrapes.
PROBES, SCRAPERS = Limits(strangers_of_address=32), Limits(strangers=32, strangers_of_address=8)


@dataclass(frozen=True)
class Address:
    """Hold the host and the port to listen on."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Return the address of the text `host:port`; an IPv6 host stands in brackets.

        Raises:
            ValueError: the text is not HOST:PORT.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal():
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104  as `:8080` is read everywhere

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


class PortError(Exception):
    """Report a port that cannot be listened on, by the option that names it."""


@dataclass(frozen=True)
class OperatorOptions:
    """Hold how an operator is set up."""

    pods: PodSettings
    namespaces: tuple[str, ...] = ()  # empty: all namespaces
    lease: Key | None = None  # None: this is the only operator
    pod: Key | None = None  # the pod that this process runs in
    listen: Address = field(default_factory=lambda: Address("127.0.0.1", 8080))
    probes: Address = field(default_factory=lambda: Address("127.0.0.1", 8081))  # kopf's, of liveness
    readiness: Address = field(default_factory=lambda: Address("127.0.0.1", 8082))
    metrics: Address | None = None  # None: Prometheus is told nothing


class Controller:
    """Run one operator. `failed` is done when a part of it has ended that should not end.

    kopf brings TrainingJobs to `take_job`; `restart_watch(why)` has kopf list and watch them anew.
    """

    def __init__(self, options: OperatorOptions, connection: ApiConnection) -> None:
        self._options = options
        identity = an_identity()
        self.agent = f"trainmaster-operator/{identity}"
        self.restart_watch: Callable[[str], None] = log.warning
        self._lease: LeaseThread | None = None
        if options.lease:
            client = Client(connection, self.agent, longest_pause=LOOK_SECONDS)  # a longer one would lose the lease
            self._lease = LeaseThread(Lease(ClusterStore(client, *options.lease), identity), client)
        self.instruments = instruments = Instruments()
        self._client = Client(connection, self.agent, self._leads, on_answer=instruments.requested)
        self._queue = WorkQueue()
        self._jobs = SweptCache(jobs.read, lambda record: record.key, self._job_changed)
        self._caches = Caches(
            jobs=self._jobs,
            pods=Cache(pod_reading.read, lambda record: record.job, self._pod_changed),
            objects={
                kind: Cache(job_objects.read, lambda record: record.job, self._object_changed)
                for kind, row in job_objects.TABLE.items()
                if row.watched and row.enabled(options.pods)
            },
            synced=self._has_read,
        )
        self._sweeps = [*self._sweep_all()]
        self._informers: list[Sweep | Informer] = [*self._sweeps, *self._watch_all()]
        self._reporter = EventReporter(self._client)
        self.intake = Intake(Verifier(Keys(self._client), self._caches.pods, self._caches.jobs).verify, self._wake)
        self._platform = ClusterPlatform(
            self._client,
            self._caches,
            intake=self.intake,
            reporter=self._reporter,
            settings=options.pods,
            wake=self._wake,
            leads=self._leads,
            led_seconds=self._led_seconds,
            on_status=instruments.wrote,
        )
        self._metrics = MetricsPage(instruments, lambda: self._caches.jobs)
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[Listener] = []
        self._listens = False
        self._at_work = False
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Start all parts. This returns at once, while everything is being read."""
        await self._client.open()
        application = web.Application()
        application.router.add_get("/readyz", self._readyz)
        await self._listen("readiness", Listener(application, PROBES), self._options.readiness)
        if self._options.metrics:
            gauge = self.instruments.gauge
            gauge("trainmaster_leader", lambda: float(self._leads()))
            gauge("trainmaster_ready", lambda: float(self.ready))
            gauge("trainmaster_queue_depth", lambda: float(len(self._queue)))
            gauge("trainmaster_pods", lambda: float(len(self._caches.pods)))
            gauge("trainmaster_watch_age_seconds", lambda: max(watch.age for watch in self._informers))
            await self._listen("metrics", Listener(self._metrics.application(), SCRAPERS), self._options.metrics)
        for informer in self._informers:
            self._run(informer.run())
        self._run(self._reporter.run())
        if self._lease:
            self._run(self._lease.run())
        if self._lease and self._options.pod:
            self._run(Reachability(self._client, self._options.pod, self._leads).run())
        self._run(self._serve())

    def take_job(self, kind: str | None, document: Document) -> None:
        """Take an event of kopf's watch; its kind is None for an object of a list."""
        if kind is None:
            for sweep in self._sweeps:
                if sweep.covers(document["metadata"]["namespace"]):
                    sweep.relisted()
        try:
            self._jobs.take(kind, document)
        except Exception:  # an unexpected object must not end the watch of all others
            log.exception("a TrainingJob cannot be read: %s", document["metadata"])
            self._jobs.skip(document)

    async def stop(self) -> None:
        """End all parts without orders to the agents: they go on training."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._lease:
            await self._lease.release()
        for listener in self._listeners:
            await listener.stop()
        await self._client.close()

    def trouble(self) -> str:
        """Return why this process should be replaced; empty while all is well."""
        if self.failed.done():
            return "a part of the operator has ended"
        if any(informer.hung for informer in self._informers):
            return "a watch hangs"
        if self._leads() and len(self._queue) and time.monotonic() - self._platform.turned > STUCK_SECONDS:
            return "the loop is stuck"
        return ""

    @property
    def ready(self) -> bool:
        """Return whether everything has been read and heartbeats are accepted.

        A standby becomes ready like the leader.
        """
        return self._listens

    async def _serve(self) -> None:
        for informer in self._informers:
            await informer.answered.wait()
        intake = self.intake.application()
        intake.middlewares.extend((self._count, self._only_the_leader))
        await self._listen("listen", Listener(intake), self._options.listen)
        self._listens = True
        if self._lease:
            await self._lease.leading.wait()
            # The watches may not have delivered yet what the former leader wrote last.
            await asyncio.gather(*(informer.list_anew() for informer in self._informers))
        log.info("read %d jobs and %d pods; at work", len(self._caches.jobs), len(self._caches.pods))
        self._at_work = True
        for record in sorted(self._caches.jobs, key=lambda record: record.finished):  # finished jobs come last
            self._queue.add(record.key)
        self._run(self._sweep())
        reconciler = TimedReconciler(self._platform, lambda: datetime.now(UTC), self.instruments)
        await loop.run(reconciler, self._queue)

    def _wake(self, key: Key) -> None:
        """Have the loop look at a job. Before the loop runs this does nothing: it begins with all jobs anyway."""
        if self._at_work:
            self._queue.add(key)

    def _has_read(self, namespace: str) -> bool:
        return all(informer.synced.is_set() for informer in self._informers if informer.covers(namespace))

    def _leads(self) -> bool:
        return self._lease is None or self._lease.leads

    def _led_seconds(self) -> float:
        return self._lease.led_seconds if self._lease else math.inf

    @web.middleware
    async def _only_the_leader(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer 421 and close the connection if this operator does not lead.

        The agent's next connection may reach the leader.
        """
        if self._leads():
            return await handler(request)
        response = web.Response(status=HTTPStatus.MISDIRECTED_REQUEST, text="another operator leads, or soon will")
        response.force_close()
        return response

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        self.instruments.answered(response.status)
        return response

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for record in self._caches.jobs:
                self._queue.add(record.key)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background. If it ends, the whole operator has failed."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.failed.done():
            return
        error = task.exception()
        if isinstance(error, LostError):
            log.warning("%s; this operator starts anew", error)
        elif isinstance(error, PortError):
            log.critical("%s", error)
        else:
            log.critical("a part of the operator has ended", exc_info=error)
        self.failed.set_result(None)

    async def _listen(self, option: str, listener: Listener, address: Address) -> None:
        self._listeners.append(listener)
        try:
            await listener.start(address.host, address.port)
        except OSError as error:
            raise PortError(f"--{option}={address}: {reason(error)}") from error

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503, text="ok" if self.ready else "reading")

    def _sweep_all(self) -> Iterator[Sweep]:
        """Yield one sweep of the jobs, or one for each namespace where the operator serves only some namespaces."""
        for scope in self._options.namespaces or ("",):
            below = f"/namespaces/{scope}" if scope else ""
            path = f"/apis/{names.API_VERSION}{below}/{names.PLURAL}"
            yield Sweep(self._client, path, self._jobs, scope, lambda why: self.restart_watch(why))  # noqa: PLW0108  it is set later

    def _watch_all(self) -> Iterator[Informer]:
        """Yield an informer for pods and one for each kind of other objects, as `_sweep_all` does for jobs."""
        for scope in self._options.namespaces or ("",):
            below = f"/namespaces/{scope}" if scope else ""
            yield Informer(self._client, f"/api/v1{below}/pods", self._caches.pods, scope, names.LABEL_JOB)
            for kind, cache in self._caches.objects.items():
                row = job_objects.TABLE[kind]
                yield Informer(self._client, f"{row.api}{below}/{row.resource}", cache, scope, names.LABEL_JOB)

    def _job_changed(self, old: JobRecord | None, new: JobRecord | None) -> None:
        record = new or old
        if record:
            self._wake(record.key)
        if old and not new:
            self._platform.forget(old.uid)

    def _pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        for record in (old, new):
            if record and record.job.name:
                self._wake(record.job)
        if old and not new:
            self.intake.forget(old.replica.uid)

    def _object_changed(self, old: ObjectRecord | None, new: ObjectRecord | None) -> None:
        record = new or old
        if record and record.job.name:
            self._wake(record.job)
