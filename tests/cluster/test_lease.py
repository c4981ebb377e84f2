# ruff: noqa: D102  a store's methods are explained by the protocol
"""Who may write: in virtual time, with pauses, lost replies, a store that is away, and clocks that nobody compares."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from aiohttp import web
from trainmaster.cluster import client as client_module
from trainmaster.cluster import lease as lease_module
from trainmaster.cluster.client import Client, RefusalError
from trainmaster.cluster.container import PodSettings
from trainmaster.cluster.controller import Controller, OperatorOptions
from trainmaster.cluster.lease import HOLD_SECONDS, LEASE_SECONDS, LOOK_SECONDS, Document, Lease, LostError, Tenure
from trainmaster.loop import UnavailableError
from trainmaster.queueing import Key

from tests.platforms import clock

from .fake_server import refusal, served

TAKEOVER_SECONDS = LEASE_SECONDS + 2 * LOOK_SECONDS


@dataclass
class Shelf:
    """The Lease object, as an API server keeps it."""

    lease: Document = field(default_factory=lambda: {"metadata": {"name": "trainmaster", "resourceVersion": "1"}})
    away: bool = False
    lose_replies: bool = False
    slow: float = 0.0
    history: list[str] = field(default_factory=list)

    async def get(self) -> Document:
        await self._reach()
        return self.lease

    async def put(self, lease: Document) -> Document:
        await self._reach()
        version = self.lease["metadata"]["resourceVersion"]
        if lease["metadata"]["resourceVersion"] != version:
            raise RefusalError("PUT", 409, "Conflict", "it was changed")
        metadata = {**lease["metadata"], "resourceVersion": str(int(version) + 1)}
        self.lease = {**lease, "metadata": metadata}
        self.history.append(lease["spec"]["holderIdentity"])
        if self.lose_replies:
            raise UnavailableError("the reply was lost")
        return self.lease

    async def _reach(self) -> None:
        await asyncio.sleep(0.01 + self.slow)
        if self.away:
            raise UnavailableError("away")


class Operator:
    """One candidate: a process that may be stopped for a while, with a clock of its own."""

    def __init__(self, shelf: Shelf, name: str, offset: float = 0.0) -> None:
        self.lease = Lease(shelf, name, now=lambda: asyncio.get_running_loop().time() + offset)
        self.task = asyncio.create_task(self.lease.run())

    def kill(self) -> None:
        """SIGKILL."""
        self.task.cancel()

    async def end(self) -> None:
        """SIGTERM."""
        self.kill()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.lease.release()


async def seconds_until(holds: Callable[[], bool]) -> float:
    """Virtual time until it holds."""
    began = asyncio.get_running_loop().time()
    while not holds():
        await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began < 60, "in vain"
    return asyncio.get_running_loop().time() - began


def alive(scenario: Callable[[Shelf], Awaitable[None]]) -> None:
    """Run it in virtual time, and end what it leaves."""

    async def whole() -> None:
        await scenario(Shelf())
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    clock.run(whole())


def test_the_standby_leads_within_five_seconds_after_the_leader_s_death() -> None:
    async def scenario(shelf: Shelf) -> None:
        for moment in range(20):
            first = Operator(shelf, "first", offset=-1e6)
            await seconds_until(lambda one=first: one.lease.leads)  # type: ignore[misc]
            second = Operator(shelf, "second", offset=1e9)
            await asyncio.sleep(1 + moment / 10)
            assert not second.lease.leads
            first.kill()
            assert await seconds_until(lambda one=second: one.lease.leads) <= TAKEOVER_SECONDS < 5  # type: ignore[misc]
            await second.end()

    alive(scenario)


def test_a_leader_that_ends_hands_over_at_once() -> None:
    async def scenario(shelf: Shelf) -> None:
        first = Operator(shelf, "first")
        await asyncio.sleep(1)
        second = Operator(shelf, "second")
        await asyncio.sleep(1)
        await first.end()
        assert not first.lease.leads
        assert await seconds_until(lambda: second.lease.leads) <= LOOK_SECONDS + 0.1

    alive(scenario)


async def storm(shelf: Shelf) -> None:
    """Lost replies, a slow server, an absent one, deaths, and clocks that are years apart."""
    random = Random(1)  # noqa: S311  a seed that is known is the point
    operators = [Operator(shelf, f"{number}", offset=random.uniform(-1e6, 1e6)) for number in range(3)]
    led: set[str] = set()
    for round_ in range(20_000):
        await asyncio.sleep(0.05)
        leaders = [one.lease.tenure.identity for one in operators if one.lease.leads]
        assert len(leaders) <= 1, leaders
        led.update(leaders)
        if random.random() < 0.03:
            shelf.away, shelf.lose_replies = random.random() < 0.4, random.random() < 0.2
            shelf.slow = random.choice([0.0, 0.0, 0.3, 1.0, 3.0])
        if random.random() < 0.005:
            victim = random.randrange(3)
            operators[victim].kill()
            operators[victim] = Operator(shelf, f"{round_}", offset=random.uniform(-1e6, 1e6))
        for number, one in enumerate(operators):
            if one.task.done() and not one.task.cancelled():
                assert isinstance(one.task.exception(), LostError)
                operators[number] = Operator(shelf, f"{round_}.{number}")
    assert len(led) > 20, "the storm was none"


def test_two_never_lead_at_once_whatever_the_network_does() -> None:
    alive(storm)


def a_leader_does_not_look_at_its_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "leads", lambda self, _now: self.led)


def a_leader_takes_its_time_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease_module, "HOLD_SECONDS", LEASE_SECONDS + 2)


def the_lease_is_taken_as_soon_as_it_is_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease_module, "LEASE_SECONDS", 0.0)


def the_lease_is_written_over_whatever_it_is(patch: pytest.MonkeyPatch) -> None:
    put = Shelf.put

    async def blind(self: Shelf, lease: Document) -> Document:
        await self._reach()
        return await put(self, {**lease, "metadata": self.lease["metadata"]})

    patch.setattr(Shelf, "put", blind)


@pytest.mark.parametrize(
    "bug",
    [
        a_leader_does_not_look_at_its_clock,
        a_leader_takes_its_time_from_the_answer,
        the_lease_is_taken_as_soon_as_it_is_seen,
        the_lease_is_written_over_whatever_it_is,
    ],
)
def test_the_storm_sees_what_is_wrong(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        alive(storm)


def test_a_leader_that_slept_too_long_wakes_as_none_and_learns_who_leads() -> None:
    async def scenario(shelf: Shelf) -> None:
        asleep = [0.0]
        loop = asyncio.get_running_loop()
        first = Lease(shelf, "first", now=lambda: loop.time() + asleep[0])
        task = asyncio.create_task(first.run())
        await asyncio.sleep(0.5)
        assert first.leads
        asleep[0] = HOLD_SECONDS  # it was stopped for so long, and did nothing meanwhile
        assert not first.leads
        shelf.lease = {
            "metadata": {"name": "trainmaster", "resourceVersion": "77"},
            "spec": {"holderIdentity": "second", "renewTime": "now"},
        }
        with pytest.raises(LostError, match="second leads now"):
            await task
        await first.release()
        assert shelf.lease["spec"]["holderIdentity"] == "second", "what is another's is not given up"

    alive(scenario)


def test_a_leader_without_the_api_server_stops_in_time_and_goes_on_if_nobody_came() -> None:
    async def scenario(shelf: Shelf) -> None:
        first = Operator(shelf, "first")
        await seconds_until(lambda: first.lease.leads)
        shelf.away = True
        assert await seconds_until(lambda: not first.lease.leads) <= HOLD_SECONDS
        await asyncio.sleep(600)
        assert not first.task.done()
        shelf.away = False
        assert await seconds_until(lambda: first.lease.leads) <= 2 * LOOK_SECONDS
        assert set(shelf.history) == {"first"}

    alive(scenario)


def test_how_long_it_has_led_is_counted_anew_after_a_break() -> None:
    tenure = Tenure("one")
    tenure.took({"spec": {"holderIdentity": "one"}}, 10.0, 10.1)
    tenure.took({"spec": {"holderIdentity": "one"}}, 11.0, 11.1)
    assert tenure.led_since == 10.1
    tenure.took({"spec": {"holderIdentity": "one"}}, 20.0, 20.1)
    assert (tenure.led_since, tenure.leads(20.2)) == (20.1, True)


def test_a_store_that_does_not_answer_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.slow = 600
        Operator(shelf, "first")
        await asyncio.sleep(30)

    alive(scenario)
    assert [record.message for record in caplog.records] == ["the lease cannot be reached: no answer in time"]


def test_a_lease_that_somebody_deleted_is_led_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(Shelf):
        async def get(self) -> Document:
            raise RefusalError("GET", 404, "NotFound", "no such lease")

        put = get  # type: ignore[assignment]

    async def scenario(_: Shelf) -> None:
        one = Operator(Gone(), "first")
        await asyncio.sleep(30)
        assert not one.lease.leads
        assert not one.task.done()

    alive(scenario)
    assert [record.message for record in caplog.records if "install the chart again" in record.message]


async def test_a_server_that_asks_for_a_long_pause_costs_no_lease() -> None:
    shelf, answered = Shelf(), 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        if answered == 1:
            return refusal(429, "TooManyRequests", {"Retry-After": "600"})
        return web.json_response(await (shelf.get() if request.method == "GET" else shelf.put(await request.json())))

    async with served(handler) as client:
        controller = Controller(
            OperatorOptions(PodSettings("http://operator", "trainer:1"), lease=Key("lab", "lease")), client._connection
        )
        assert controller._lease
        task = asyncio.create_task(controller._lease.run())
        await asyncio.wait_for(controller._lease.leading.wait(), 100)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await controller._lease.release()


async def test_what_was_begun_in_time_and_is_sent_too_late_does_not_arrive() -> None:
    """Its head may; without a body the API server does nothing."""
    answers = iter([True, False])
    arrived = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        await request.read()
        arrived.set()
        return web.json_response({})

    async with served(handler) as client:
        fenced = Client(client._connection, may_write=lambda: next(answers))
        await fenced.open()
        with pytest.raises(UnavailableError, match=client_module.NOT_LEADING):
            await fenced.post("/api/v1/pods", {"a": 1})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(arrived.wait(), 0.2)
        await fenced.close()
    assert not arrived.is_set()


async def test_reading_is_free() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"read": True})

    async with served(handler) as client:
        standby = Client(client._connection, may_write=lambda: False)
        await standby.open()
        assert await standby.get("/api/v1/pods") == {"read": True}
        for write in (standby.post("/x", {}), standby.json_patch("/x", []), standby.delete("/x", "uid")):
            with pytest.raises(UnavailableError):
                await write
        await standby.close()
