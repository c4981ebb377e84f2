"""The lease is renewed while the operator's event loop is blocked; the loop is really blocked here."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import kopf
import pytest
from trainmaster.cluster import lease as lease_module
from trainmaster.cluster import lease_thread
from trainmaster.cluster.api_connection import ApiConnection
from trainmaster.cluster.client import Client
from trainmaster.cluster.lease import Document, Lease, LostError
from trainmaster.cluster.lease_thread import LeaseThread
from trainmaster.core.decide import decide

from tests.core import test_linear
from tests.core.test_linear import NOW

from .test_lease import Shelf

PATIENCE_SECONDS = 60.0  # so that a test that fails ends
MOST_DECISIONS = 200


class Watched(Shelf):
    """A lease that tells when it was renewed often, and when it was given up. Its events are those of threads."""

    def __init__(self) -> None:
        super().__init__()
        self.renewed, self.given_up = threading.Event(), threading.Event()

    async def put(self, lease: Document) -> Document:
        """Replace it."""
        answer = await super().put(lease)
        if len(self.history) > 5:
            self.renewed.set()
        if not self.history[-1]:
            self.given_up.set()
        return answer


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(lease_thread, "LOOK_SECONDS", 0.05)
    return Watched()


@contextlib.asynccontextmanager
async def leading(shelf: Watched, stuck_looks: int = 1000) -> AsyncIterator[tuple[LeaseThread, asyncio.Task[None]]]:
    nowhere = Client(ApiConnection(lambda: kopf.ConnectionInfo(server="http://127.0.0.1:1")))
    held = LeaseThread(Lease(shelf, "me"), nowhere, stuck_looks)
    task = asyncio.create_task(held.run())
    await asyncio.wait_for(held.leading.wait(), PATIENCE_SECONDS)
    yield held, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await held.release()


async def test_a_blocked_event_loop_loses_no_lease(shelf: Watched) -> None:
    async with leading(shelf) as (held, task):
        assert shelf.renewed.wait(PATIENCE_SECONDS), "nothing else runs in this event loop meanwhile"
        assert held.leads
        assert not task.done()


async def test_the_lease_is_renewed_while_large_jobs_are_decided(shelf: Watched) -> None:
    """A decision holds Python's lock, but never for as long as the lease lasts."""
    worlds = [(world(2000), NOW) for world in (test_linear.starting, test_linear.training)]
    async with leading(shelf) as (held, task):
        decisions = 0
        while not shelf.renewed.is_set():
            for (job, observed), now in worlds:
                decide(job, observed, now)
            decisions += 1
            assert decisions < MOST_DECISIONS, "the lease is not renewed meanwhile"
        assert held.leads
        assert not task.done()


async def test_an_event_loop_that_is_stuck_gives_the_lease_up_and_writes_nothing(shelf: Watched) -> None:
    async with leading(shelf, stuck_looks=3) as (held, task):
        assert shelf.given_up.wait(PATIENCE_SECONDS)
        assert not held.leads
        with pytest.raises(LostError, match="stuck"):
            await task


async def test_it_is_kept_until_all_is_written_and_then_given_up(shelf: Watched) -> None:
    async with leading(shelf) as (held, task):
        task.cancel()
        await asyncio.wait([task])
        assert held.leads
        await held.release()
        assert shelf.given_up.is_set()
        assert not held.leads


async def test_one_that_never_ran_has_nothing_to_release(shelf: Watched) -> None:
    nowhere = Client(ApiConnection(lambda: kopf.ConnectionInfo(server="http://127.0.0.1:1")))
    await LeaseThread(Lease(shelf, "me"), nowhere).release()
    assert shelf.history == []
