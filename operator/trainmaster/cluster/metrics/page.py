"""Serve /metrics: the operator's own instruments and the figures of its jobs, as text for Prometheus.

Making the page of a thousand jobs takes 0.1 s of a core. That happens in a thread, one page at a time,
and a page serves all who ask within FRESH_SECONDS: whoever asks again and again costs nothing, and no heartbeat waits.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from aiohttp import web
from prometheus_client import Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from trainmaster.api.job import TrainingJob
from trainmaster.cluster.jobs import JobRecord
from trainmaster.cluster.metrics.instruments import Instruments
from trainmaster.cluster.metrics.job_figures import texts

FRESH_SECONDS = 1.0
_REST_SECONDS = 0.001
# The figures of a job that is over are told for so long: a scrape a minute, and an alert that looks back, see them.
FINISHED_SECONDS = 15 * 60.0


class MetricsPage:
    """MetricsPage makes the text. `records` gives all jobs that the operator knows; it is called in the event loop."""

    def __init__(self, instruments: Instruments, records: Callable[[], Iterable[JobRecord]]) -> None:
        self._instruments = instruments
        self._records = records
        self._making = asyncio.Lock()
        self._made = (0.0, b"")

    def application(self) -> web.Application:
        """Return the application that serves the page."""
        application = web.Application()
        application.router.add_get("/metrics", self._answer)
        return application

    async def text(self) -> bytes:
        """Return the page, at most FRESH_SECONDS old."""
        async with self._making:
            made, text = self._made
            if not text or time.monotonic() - made > FRESH_SECONDS:
                text = await asyncio.to_thread(_make, self._instruments, list(self._records()))
                self._made = time.monotonic(), text
            return text

    async def _answer(self, _: web.Request) -> web.Response:
        return web.Response(body=await self.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Family(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yield the one family."""
        yield self._family


def _make(instruments: Instruments, records: list[JobRecord]) -> bytes:
    """Return the page. Between two families the event loop has its turn: this thread holds the interpreter's lock."""
    count = GaugeMetricFamily("trainmaster_jobs", "Jobs by phase, those that are over included.", labels=("phase",))
    for phase, number in sorted(Counter(record.phase for record in records).items()):
        count.add_metric((phase,), number)
    parts = [generate_latest(instruments.registry), generate_latest(_Family(count))]
    for text in texts(_shown_jobs(records)):
        parts.append(text)
        time.sleep(_REST_SECONDS)
    return b"".join(parts)


def _shown_jobs(records: Iterable[JobRecord]) -> Iterator[TrainingJob]:
    """Yield the jobs whose figures are told; those that this version cannot read, or that are too large, have none."""
    oldest = datetime.now(UTC).timestamp() - FINISHED_SECONDS
    for record in records:
        if not record.large and (not record.finished or _ended(record) > oldest):
            job = record.parsed
            if isinstance(job, TrainingJob):
                yield job


def _ended(record: JobRecord) -> float:
    try:
        return datetime.fromisoformat(record.completion_time).timestamp()
    except (ValueError, OverflowError):  # never written, or by somebody else
        return 0.0
