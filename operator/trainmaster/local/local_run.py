"""Run one job on this machine from start to end: the intake at a unix socket, the loop, the agents."""

import asyncio
import contextlib
import dataclasses
import secrets
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from aiohttp import web

from trainmaster import loop
from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.api.status import CheckpointStatus, JobProgress, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import ledger, resumption
from trainmaster.core.regime.choice import look
from trainmaster.core.report.job_progress import progress
from trainmaster.core.report.starting import waits_for
from trainmaster.core.states.actions import PostEvent
from trainmaster.core.states.observed import Observed
from trainmaster.listening.listener import Listener
from trainmaster.local import fault_option
from trainmaster.local.failure_report import Cause, cause_of
from trainmaster.local.local_platform import LocalPlatform, PlatformListeners
from trainmaster.local.variables import Site
from trainmaster.local.workdir import Workdir
from trainmaster.queueing import WorkQueue

# Seconds between two updates of the view.
TICK_SECONDS = 0.25
INTAKE = "intake"  # the socket for heartbeats, in the run's private folder


class Audience(Protocol):
    """An audience is a view of cli/ that shows a run. Each call returns soon and raises nothing."""

    def event(self, event: PostEvent) -> None:
        """Show an event."""

    def output(self, name: str, chunk: bytes) -> None:
        """Show what an agent, or one of its ranks, printed."""

    def waiting(self, what: str) -> None:
        """Show what the start of an attempt waits for. This is called several times a second while it waits."""

    def progress(self, status: TrainingJobStatus, progress: JobProgress) -> None:
        """Show the progress. This is called several times a second."""


@dataclass(frozen=True)
class RunOutcome:
    """Hold how a run ended. `stopped` is true if it was stopped from outside, before the job had ended."""

    status: TrainingJobStatus
    stopped: bool
    cause: Cause
    faults: tuple[tuple[str, str], ...] = ()
    """What was done on purpose, and what it cost."""


class Session:
    """Hold a job, its folders, and the view that shows it."""

    def __init__(self, job: TrainingJob, workdir: Workdir, site: Site, audience: Audience) -> None:
        self._workdir = workdir
        self._audience = audience
        self._queue = WorkQueue()
        self._news = asyncio.Event()
        self._stops = 0
        self._faults = [*site.armed.faults]  # the faults that have not come yet
        token = secrets.token_urlsafe(32)
        site.token_file.touch(mode=0o600)
        site.token_file.write_text(token)
        listeners = PlatformListeners(self._changed, audience.output, self._event)
        self._platform = LocalPlatform(begin(job, workdir), workdir, site, token, listeners)

    def stop(self) -> None:
        """Stop the run: the first call lets ranks save, the second kills all. To be called in the loop's thread."""
        self._stops += 1
        if self._stops == 1:
            self._platform.suspend()
        else:
            self._platform.kill()

    @property
    def stopping(self) -> bool:
        """Return whether `stop` was called."""
        return self._stops > 0

    async def run(self) -> RunOutcome:
        """Train until the job has ended or was stopped, and return the outcome. No process is left then."""
        platform = self._platform
        async with served(platform.intake.application(), platform.site.scratch / INTAKE) as url:
            platform.site = dataclasses.replace(platform.site, operator_url=url)
            self._changed()
            reconciler = loop.Reconciler(platform, now)
            try:
                async with loop.running(reconciler, self._queue, workers=1) as task:
                    await self._watch(task)
            finally:
                await platform.close()
        status = platform.job.status
        stopped = self._stops > 0 and not status.finished
        if stopped:
            checkpoint = self._newest_checkpoint()
            where = f"at step {checkpoint.step}" if checkpoint else "before its first checkpoint"
            message = f"Stopped {where}; another run in the same folder goes on from there."
            reached = progress(look(platform.job, platform.past, now()), status)  # as the ranks said when they left
            status = dataclasses.replace(status, checkpoint=checkpoint, progress=reached, message=message)
            await platform.write_status(platform.job, status)
        costs = fault_option.costs(platform.site.armed, status)
        return RunOutcome(status, stopped, cause_of(status, platform.heartbeats(), self._workdir.logs), costs)

    async def _watch(self, task: asyncio.Task[None]) -> None:
        clock, due = asyncio.get_running_loop(), 0.0
        while not (self._over or task.done()):
            if clock.time() >= due:
                await self._tell()
                due = clock.time() + TICK_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - clock.time())):
                    await self._news.wait()
            self._news.clear()
        await self._tell()
        if self._platform.job.status.finished:
            await self._platform.agents_gone()

    @property
    def _over(self) -> bool:
        """Return whether the job has finished, or is suspended without processes: nothing can resume it in this run."""
        status = self._platform.job.status
        return status.finished or (status.phase == Phase.SUSPENDED and self._platform.empty)

    async def _tell(self) -> None:
        self._tell_faults()
        seen = await self._platform.observe(self._platform.key)
        if not seen:
            return
        facts = look(*seen, now())
        if what := waits_for(facts, facts.status.phase):
            self._audience.waiting(what)
        self._audience.progress(facts.status, progress(facts, facts.status))

    def _tell_faults(self) -> None:
        """Show the faults that have come since the last call."""
        for fault in [fault for fault in self._faults if self._platform.site.armed.came(fault)]:
            self._faults.remove(fault)
            self._audience.event(fault_option.event(self._platform.site.armed, fault))

    def _changed(self) -> None:
        self._queue.add(self._platform.key)
        self._news.set()

    def _event(self, event: PostEvent) -> None:
        """Show an event, but not the end, which the view's last lines tell, nor a suspension that `stop` asked for."""
        self._tell_faults()  # so that a fault is shown before its effect
        status = self._platform.job.status
        if not status.finished and not (self._stops and event.reason == Phase.SUSPENDED):
            self._audience.event(event)

    def _newest_checkpoint(self) -> CheckpointStatus | None:
        """Return the newest checkpoint, also one that was saved while the run ended; None if there is none."""
        records = [beat.checkpoint for beat in self._platform.heartbeats() if beat.checkpoint]
        newest = max(records, key=lambda record: record.step, default=None)
        written = self._platform.job.status.checkpoint
        if newest is None or (written and written.step >= newest.step):
            return written
        return CheckpointStatus(step=newest.step, time=figures.moment(newest.time), sha256=newest.sha256)


def now() -> datetime:
    """Return the time as the core wants it: aware, in UTC."""
    return datetime.now(UTC)


def begin(job: TrainingJob, workdir: Workdir) -> TrainingJob:
    """Return the job with a uid made of the folder's path, and with what an earlier run left in the folder.

    Attempts count on, so that a late process of the earlier run is not taken for one of this run.
    """
    workdir.forget_result()
    before = workdir.read_status()
    status = TrainingJobStatus()
    if before.attempt:
        # One that failed had used up its restarts, or had not to be tried again: the next run is given new ones.
        status = status if before.phase == Phase.FAILED else _kept(job, before)
        status = dataclasses.replace(status, attempt=before.attempt + 1, start_time=now(), message="Going on.")
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, workdir.path.as_uri()))
    metadata = job.metadata.model_copy(update={"uid": uid, "generation": 1})
    return job.model_copy(update={"metadata": metadata, "status": status})


def _kept(job: TrainingJob, before: TrainingJobStatus) -> TrainingJobStatus:
    """Return what goes on from the earlier run: its ledger with its figures, and the step it had to resume before."""
    facts = look(job.model_copy(update={"status": before}), Observed(), now())
    heard = ledger.overtaken(before, "stopped")
    return TrainingJobStatus(
        restarts=ledger.left_behind(heard),
        restart_count=heard.restart_count,
        running_time=before.running_time,
        resume_before=resumption.still_before(facts),
    )


@contextlib.asynccontextmanager
async def served(application: web.Application, path: Path) -> AsyncIterator[str]:
    """Serve the application at a unix socket, which no other user of this machine can reach, and yield its URL."""
    listener = Listener(application, goodbye_seconds=0.5)
    await listener.start_at(path)
    try:
        yield f"unix:{path}"
    finally:
        await listener.stop()
