"""The platform on one machine keeps the contract, with real agents as processes."""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from trainmaster.core.states.actions import PostEvent
from trainmaster.core.states.observed import Replica
from trainmaster.local.local_platform import LocalPlatform, PlatformListeners
from trainmaster.local.variables import Site
from trainmaster.local.workdir import Workdir
from trainmaster.queueing import Key

from tests.builders import a_job
from tests.platforms.contract import TELLS, Clause, clauses_for

CAN = frozenset({TELLS})
TOKEN = "the token of this run"


class LocalWorld:
    """A local platform without its loop."""

    def __init__(self, workdir: Workdir, folder: Path, scratch: Path, warm_socket: Path) -> None:
        self.key, self.can = Key("lab", "digits"), CAN
        self._rings = asyncio.Event()
        self._told: list[str] = []
        token_file = folder / "token"
        token_file.write_text(TOKEN)
        site = Site(folder, folder / "checkpoints", scratch, warm_socket, token_file)
        listeners = PlatformListeners(self._rings.set, lambda _name, _chunk: None, self._event)
        self.platform = LocalPlatform(a_job().with_workers(2).build(), workdir, site, TOKEN, listeners)

    async def news(self, seconds: float) -> None:
        """What the platform rings for; what agents say without ringing needs a look now and then."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rings.wait(), seconds)
        self._rings.clear()

    async def start(self, replica: Replica) -> None:
        """It starts by itself."""

    async def kill(self, replica: Replica) -> None:
        """SIGKILL."""
        os.kill(self.platform._places[replica.name].agent.process.pid, signal.SIGKILL)

    async def edit(self) -> None:
        """Nobody can."""

    async def refuse(self, refused: bool) -> None:
        """Nobody does."""

    async def told(self) -> list[str]:
        """What the terminal was told."""
        return self._told

    def lose_next_reply(self) -> None:
        """There is nobody in between."""

    def _event(self, event: PostEvent) -> None:
        self._told.append(event.reason)


@contextlib.asynccontextmanager
async def local_world(folder: Path, warm_socket: Path) -> AsyncIterator[LocalWorld]:
    """With its intake served, and all its processes ended afterwards."""
    # What agents leave in memory when they are killed goes with the scratch folder, as in a run.
    with Workdir(folder / "work") as workdir, tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        world = LocalWorld(workdir, folder, Path(scratch), warm_socket)
        runner = web.AppRunner(world.platform.intake.application(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        world.platform.site = _at(world.platform.site, url)
        try:
            yield world
        finally:
            world.platform.kill()
            await world.platform.close()
            await runner.cleanup()


def _at(site: Site, url: str) -> Site:
    return Site(site.folder, site.checkpoints, site.scratch, site.warm_socket, site.token_file, url)


@pytest.mark.parametrize("clause", clauses_for(CAN), ids=lambda clause: clause.__name__)
async def test_the_local_platform_keeps_the_contract(clause: Clause, tmp_path: Path, warm_parent: Path) -> None:
    async with local_world(tmp_path, warm_parent) as world:
        await clause(world)
