"""One local run from start to end: the intake on loopback, the loop, the agents. Called by cli/run.py."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from trainmaster import loop
from trainmaster.api.job import TrainingJob
from trainmaster.api.status import Progress, TrainingJobStatus
from trainmaster.core import report
from trainmaster.core.actions import PostEvent
from trainmaster.core.facts import Facts
from trainmaster.local.platform import LocalPlatform
from trainmaster.local.workdir import Workdir
from trainmaster.queueing import WorkQueue

# How often the view is told of progress.
TICK_SECONDS = 0.25


def now() -> datetime:
    """The time, as the core wants it."""
    return datetime.now(UTC)


def begin(job: TrainingJob, workdir: Workdir) -> TrainingJob:
    """The job with an identity of this folder, and with what an earlier run in it left.

    Attempts go on counting: a process of the earlier run that wakes late must not be taken for one of this run.
    """
    workdir.forget_result()
    before = workdir.read_status()
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, workdir.path.absolute().as_uri()))
    status = TrainingJobStatus()
    if before.attempt:
        kept = {} if before.finished else {"restarts": before.restarts, "restart_count": before.restart_count}
        message = f"Going on in {workdir.path}."
        update = {"attempt": before.attempt + 1, "phase": "Pending", "start_time": now(), "message": message, **kept}
        status = status.model_copy(update=update)
    metadata = job.metadata.model_copy(update={"uid": uid, "generation": 1})
    return job.model_copy(update={"metadata": metadata, "status": status})


@dataclass
class Listeners:
    """Who is told what, while a job runs."""

    on_event: Callable[[PostEvent], None]
    on_output: Callable[[str, bytes], None]
    on_progress: Callable[[TrainingJobStatus, Progress], None]


@dataclass
class Session:
    """A job, its folder, and who listens."""

    job: TrainingJob
    folder: Path
    workdir: Workdir
    listeners: Listeners
    warm_socket: Path | None = None

    async def run(self, stop: asyncio.Event) -> TrainingJobStatus:
        """Train until the job has ended or `stop` is set. All processes are gone when this returns."""
        queue = WorkQueue()
        platform = LocalPlatform(
            begin(self.job, self.workdir), self.workdir, queue.add, self.listeners.on_output, self.listeners.on_event
        )
        platform.folder, platform.warm_socket = self.folder, self.warm_socket
        async with _served(platform.intake.application()) as url:
            platform.operator_url = url
            queue.add(platform.key)
            reconciler = loop.Reconciler(platform, now)
            try:
                async with loop.running(reconciler, queue, workers=1) as task:
                    await self._watch(platform, task, stop)
            finally:
                await platform.close()
        return platform.job.status

    async def _watch(self, platform: LocalPlatform, task: asyncio.Task[None], stop: asyncio.Event) -> None:
        while not (platform.job.status.finished or stop.is_set() or task.done()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), TICK_SECONDS)
            await self._tell(platform)
        if platform.job.status.finished:
            await platform.agents_gone()

    async def _tell(self, platform: LocalPlatform) -> None:
        seen = await platform.observe(platform.key)
        if seen:
            facts = Facts(*seen, now())
            self.listeners.on_progress(seen[0].status, report.progress(facts, seen[0].status))


@contextlib.asynccontextmanager
async def _served(application: web.Application) -> AsyncIterator[str]:
    """The application on a free port of the loopback interface; gives its URL."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
