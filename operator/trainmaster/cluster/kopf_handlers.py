"""Run the operator in kopf: the handlers of its start, login, jobs, probe and end.

kopf watches TrainingJobs and hands each event to `job_event`. All else is ours, and lives on while kopf is run anew:
whatever ends kopf's watch (an error event of the API server, a CustomResourceDefinition that is gone) ends neither the
operator nor training. kopf writes nothing: no finalizer, no annotation, no peering, no event (docs/decisions/0163).
"""

import asyncio
import errno
import itertools
import logging
import os
import resource
import signal
from collections.abc import Collection, Iterator
from typing import Any

import kopf

from trainmaster.api.problem import reason
from trainmaster.cluster import watch_session
from trainmaster.cluster.api_connection import ApiConnection
from trainmaster.cluster.controller import Controller, OperatorOptions, PortError
from trainmaster.cluster.informer import PAGE, WATCH_SECONDS, pause_seconds
from trainmaster.wire import names

log = logging.getLogger("trainmaster.operator")

# A stop that takes longer than this is ended by SIGKILL.
EXIT_SECONDS = 10.0
# After a run of kopf of this length, its next failure is the first of a row.
WELL_SECONDS = 60.0
# kopf keeps the task of an object, and its last document, for so long.
IDLE_SECONDS = 0.05


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def startup(memo: kopf.Memo, **_: Any) -> None:
    """Start our own parts when kopf is run for the first time."""
    await memo.operator.start()


@kopf.on.login()
async def login(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> kopf.AiohttpSession:
    """Give kopf a session of ours, which keeps its credentials fresh."""
    return watch_session.open_session(memo.operator.connection, memo.operator.controller.agent, settings)


@kopf.on.event(names.GROUP, names.VERSION, names.PLURAL)
async def job_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Put a job's document into the cache. If that is news, the queue gets the job's key."""
    memo.operator.controller.take_job(event["type"], event["object"])


@kopf.on.probe(id="operator")
async def probe(memo: kopf.Memo, **_: Any) -> str:
    """Tell the kubelet whether this process should live: an error is HTTP status 500."""
    if trouble := memo.operator.controller.trouble():
        raise kopf.PermanentError(trouble)
    return "ok"


@kopf.on.cleanup(errors=kopf.ErrorsMode.PERMANENT)
async def cleanup(memo: kopf.Memo, **_: Any) -> None:
    """Stop our own parts, if kopf is not to be run anew."""
    if memo.operator.over:
        await memo.operator.stop()


def run(options: OperatorOptions) -> int:
    """Run until a signal comes or a part fails, and return the exit code."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each agent has two connections; 1,024 are too few
    try:
        connection = ApiConnection()
    except kopf.LoginError as error:
        log.critical("no way to the API server: %s", error)
        return 1
    if not log.isEnabledFor(logging.DEBUG):  # kopf logs each event, and each try; ours says the same in fewer lines
        logging.getLogger("kopf").setLevel(logging.CRITICAL)
        logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # of kopf's probe
    return asyncio.run(_run(options, connection))


async def _run(options: OperatorOptions, connection: ApiConnection) -> int:
    return await Operator(options, Controller(options, connection), connection).run()


class Operator:
    """Run kopf, and our own parts in it, until a signal comes or a part fails."""

    def __init__(self, options: OperatorOptions, controller: Controller, connection: ApiConnection) -> None:
        self._options = options
        self._started = False
        self._failed = False
        self._stop = asyncio.Event()
        self._killing: asyncio.TimerHandle | None = None
        self.controller = controller
        self.connection = connection
        self.over = False  # as opposed to: kopf ends to be run anew
        controller.restart_watch = self.restart_watch
        controller.failed.add_done_callback(lambda _: self.end(failed=True))

    async def run(self) -> int:
        """Return the exit code."""
        failures, loop = 0, asyncio.get_running_loop()
        while not self.over:
            began = loop.time()
            try:
                await self._run_kopf()
            except Exception as error:  # noqa: BLE001  whatever else it is, the watch goes on
                if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                    log.critical("--probes=%s: %s", self._options.probes, reason(error))
                    self.end(failed=True)
                if self.over:
                    break
                log.warning("kopf's watch has ended, and begins anew: %s: %s", type(error).__name__, error)
            failures = 1 if loop.time() - began > WELL_SECONDS else failures + 1
            if not self.over:
                await asyncio.sleep(pause_seconds(failures))
        await self.stop()  # where kopf failed before it called `cleanup`
        return 1 if self._failed else 0

    async def start(self) -> None:
        """Start our own parts, once. If they cannot start, all ends: Kubernetes starts the process again."""
        if self._started:
            return
        self._started = True
        try:
            await self.controller.start()
        except BaseException as error:
            if isinstance(error, PortError):
                log.critical("%s", error)
            self.end(failed=True)
            raise

    async def stop(self) -> None:
        """Stop our own parts, once."""
        if self._started:
            self._started = False
            await self.controller.stop()
        if self._killing:
            self._killing.cancel()

    def restart_watch(self, why: str) -> None:
        """Have kopf list and watch anew, while our own parts live on."""
        log.warning("kopf's watch begins anew: %s", why)
        self._stop.set()

    def end(self, *, failed: bool = False) -> None:
        """End all."""
        self._failed = self._failed or failed
        self.over = True
        self._stop.set()
        if self._killing is None:
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(EXIT_SECONDS, os.kill, os.getpid(), signal.SIGKILL)

    async def _run_kopf(self) -> None:
        self._stop = asyncio.Event()
        namespaces, probes = self._options.namespaces, self._options.probes
        tasks = await kopf.spawn_tasks(
            settings=_settings(),
            memo=kopf.Memo(operator=self),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            liveness_endpoint=f"http://{probes}/healthz",
            stop_flag=self._stop,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):  # kopf's own handlers are lost between two runs of it
            loop.add_signal_handler(number, self.end)
        try:
            await kopf.run_tasks(tasks, ignored=_AllTasks())
        finally:
            self._stop.set()  # a task of kopf waits for it


def _settings() -> kopf.OperatorSettings:
    """Return settings under which kopf writes nothing, needs no rights but ours, and never gives up."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True  # watching namespaces and definitions would need rights
    settings.process.ultimate_exiting_timeout = None  # an end of kopf is not the end of the process
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.watching.chunk_size = PAGE
    settings.watching.server_timeout = WATCH_SECONDS
    settings.networking.connect_timeout = 5.0
    settings.networking.request_timeout = 60.0
    settings.networking.error_backoffs = _Backoffs()
    settings.persistence.finalizer = "no object can have this"  # kopf would take its own off: that is a write
    settings.persistence.diffbase_storage = _NoDiff()
    return settings


class _Backoffs:
    """Pause between tries without end: an API server may be away for hours."""

    def __iter__(self) -> Iterator[float]:
        return (pause_seconds(failures) for failures in itertools.count(1))


class _NoDiff(kopf.DiffBaseStorage):
    """Keep nothing of an object to compare it with.

    Comparing costs a deep copy for each event, and is for handlers of changes, of which there are none.
    """

    def build(self, **_: Any) -> Any:
        """Return what is compared."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Return what is stored on the object."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


class _AllTasks(Collection[asyncio.Task[Any]]):
    """Have kopf take all tasks for not its own, for it cancels at its end whatever was begun since its start.

    Our own parts begin tasks all the time, and live on. kopf has stopped its own by then.
    """

    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(asyncio.all_tasks())

    def __len__(self) -> int:
        return len(asyncio.all_tasks())
