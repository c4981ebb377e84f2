"""Run the Kubernetes hand inside of kopf: login, startup, cleanup, signals.

kopf's own watching is not used (docs/decisions/0004): one informer serves jobs, pods and services alike, and survives
errors that would end kopf's.
"""

import asyncio
import logging
import resource
from typing import Any

import kopf

from trainmaster.cluster.connection import Connection, login
from trainmaster.cluster.hand import Hand, Options

log = logging.getLogger("trainmaster.operator")

# If the API server cannot be reached for this long at the start, the process ends, and Kubernetes restarts it.
PATIENCE = (1, 1, 2, 3, 5, *[8] * 100)
EXIT_SECONDS = 10.0


def run(options: Options) -> int:
    """Run until a signal comes or a part fails, and return the exit code."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each agent has two connections; 1,024 are too few
    try:
        connection = Connection()
    except kopf.LoginError as error:
        log.critical("no way to the API server: %s", error)
        return 1
    return asyncio.run(_run(options, connection))


async def _run(options: Options, connection: Connection) -> int:
    shell = _Shell(options, connection)
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(shell.login)
    # Do not retry a failed start: end the process, and Kubernetes restarts it.
    kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(shell.startup)
    kopf.on.cleanup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(shell.cleanup)
    await kopf.operator(
        registry=registry,
        settings=_settings(),
        standalone=True,
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        stop_flag=shell.stop,
    )
    return 1 if shell.failed else 0


def _settings() -> kopf.OperatorSettings:
    """Return settings under which kopf writes nothing and needs no rights."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.error_backoffs = PATIENCE
    settings.process.ultimate_exiting_timeout = EXIT_SECONDS
    return settings


class _Shell:
    """Hold kopf's handlers."""

    def __init__(self, options: Options, connection: Connection) -> None:
        self._options = options
        self._connection = connection
        self._hand: Hand | None = None
        self.stop = asyncio.Event()
        self.failed = False

    async def login(self, **_: Any) -> kopf.ConnectionInfo:
        return login()

    async def startup(self, **_: Any) -> None:
        self._hand = Hand(self._options, self._connection)
        self._hand.failed.add_done_callback(self._fail)
        await self._hand.start()

    async def cleanup(self, **_: Any) -> None:
        if self._hand:
            await self._hand.stop()
        self.stop.set()  # if this is not set, kopf waits 5 s for the task that waits for it

    def _fail(self, _: object) -> None:
        self.failed = True
        self.stop.set()
