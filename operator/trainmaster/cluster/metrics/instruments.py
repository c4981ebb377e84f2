"""Count and time the operator's own work: looks at jobs, requests to the API server, heartbeats, failures of jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from typing_extensions import override

from trainmaster import __version__
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cluster.metrics.job_figures import known_class
from trainmaster.loop import Platform, Reconciler
from trainmaster.queueing import Key

_LOOK_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
_REQUEST_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
# /api/v1/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE, /apis/GROUP/VERSION/...; parts may be missing.
_PATH = re.compile(r"/(?:api|apis/[^/]+)/[^/]+(?:/namespaces/[^/]+)?/(?P<resource>[a-z]+)(?:/[^/]+)?(?P<sub>/[a-z]+)?")

GAUGES = {
    "trainmaster_leader": "1 for the operator that leads.",
    "trainmaster_ready": "1 when all jobs are read and heartbeats are accepted.",
    "trainmaster_queue_depth": "Jobs that wait for a look.",
    "trainmaster_pods": "Pods of jobs.",
    "trainmaster_watch_age_seconds": "Since the last word of the watch that has been silent for longest.",
}


class Instruments:
    """Instruments holds the operator's own metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self.look_seconds = Histogram(
            "trainmaster_reconcile_duration_seconds",
            "How long a look at a job took.",
            buckets=_LOOK_BUCKETS,
            registry=registry,
        )
        self.look_errors = Counter(
            "trainmaster_reconcile_errors",
            "Looks that ended with an error, by its type.",
            ["reason"],
            registry=registry,
        )
        self._requests = Counter(
            "trainmaster_api_requests", "Requests to the API server.", ["verb", "resource", "code"], registry=registry
        )
        self._request_seconds = Histogram(
            "trainmaster_api_request_duration_seconds",
            "How long they took.",
            ["verb"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._heartbeats = Counter(
            "trainmaster_heartbeats", "Answers to heartbeats, by HTTP status.", ["code"], registry=registry
        )
        self._failures = Counter(
            "trainmaster_failures",
            "Failures of jobs that this operator has written into ledgers.",
            ["class"],
            registry=registry,
        )
        build = Gauge("trainmaster_build_info", "The operator's version.", ["version"], registry=registry)
        build.labels(__version__).set(1)

    def gauge(self, name: str, value: Callable[[], float]) -> None:
        """Add a gauge of GAUGES, whose value is asked for at each scrape."""
        Gauge(name, GAUGES[name], registry=self.registry).set_function(value)

    def requested(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request to the API server; status 0 means that there was no answer."""
        found = _PATH.match(path)
        resource = f"{found['resource']}{found['sub'] or ''}" if found else "other"
        self._requests.labels(method.lower(), resource, str(status or "none")).inc()
        self._request_seconds.labels(method.lower()).observe(seconds)

    def answered(self, status: int) -> None:
        """Count an answer to a heartbeat."""
        self._heartbeats.labels(str(status)).inc()

    def wrote(self, before: TrainingJobStatus, after: TrainingJobStatus) -> None:
        """Count the failures that a written status has and the one before it had not."""
        known = {(record.attempt, record.time, record.replica) for record in before.restarts}
        for record in after.restarts:
            if (record.attempt, record.time, record.replica) not in known:
                self._failures.labels(known_class(record.failure_class)).inc()


class TimedReconciler(Reconciler):
    """A reconciler whose looks are timed, and whose errors are counted."""

    def __init__(self, platform: Platform, now: Callable[[], datetime], instruments: Instruments) -> None:
        super().__init__(platform, now)
        self._instruments = instruments

    @override
    async def reconcile(self, key: Key) -> float | None:
        """Look at the job as `Reconciler` does."""
        began = time.monotonic()
        try:
            return await super().reconcile(key)
        except Exception as error:
            self._instruments.look_errors.labels(type(error).__name__).inc()
            raise
        finally:
            self._instruments.look_seconds.observe(time.monotonic() - began)
