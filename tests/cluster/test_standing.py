"""A leader looks at its own pod; what a real API server does then is in test_leaders."""

import asyncio

import pytest
from aiohttp import web
from trainmaster.cluster import reachability
from trainmaster.cluster.lease import LostError
from trainmaster.cluster.reachability import Reachability
from trainmaster.queueing import Key

from .fake_server import Document, refusal, served


def a_pod(ready: str, **metadata: str) -> Document:
    """Of an operator."""
    told = [{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": "True"}]
    return {"metadata": {"name": "one", "uid": "1", **metadata}, "status": {"phase": "Running", "conditions": told}}


async def looks(answers: list[web.Response | Document], leads: bool = True, seconds: float = 100.0) -> int:
    """Return how often it looked in so long, at most five times, unless it left the lead; the last answer stands."""
    asked: list[str] = []
    first, often = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        first.set()
        if len(asked) == 5:
            often.set()
        now = answers[min(len(asked), len(answers)) - 1]
        return now if isinstance(now, web.Response) else web.json_response(now)

    async with served(answer) as client:
        watch = asyncio.create_task(Reachability(client, Key("system", "one"), lambda: leads).run())
        enough = asyncio.create_task(often.wait())
        if leads:
            await asyncio.wait_for(first.wait(), 100)  # the time to connect is not of the time to look
        ended, _ = await asyncio.wait({watch, enough}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if watch in ended:
            watch.result()
        watch.cancel()
        enough.cancel()
        await asyncio.gather(watch, enough, return_exceptions=True)
    assert set(asked) <= {"/api/v1/namespaces/system/pods/one"}
    return len(asked)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "LOOK_SECONDS", 0.01)


@pytest.mark.parametrize(
    "answers",
    [
        [a_pod("True"), a_pod("False")],
        [a_pod("False", deletionTimestamp="2026-01-01T00:00:00Z")],
        [a_pod("True"), refusal(404, "NotFound")],
    ],
    ids=["out of its service", "is being deleted", "is gone"],
)
def test_a_leader_leaves_the_lead(answers: list[web.Response | Document]) -> None:
    with pytest.raises(LostError):
        asyncio.run(looks(answers))


def test_who_was_out_of_the_service_before_it_led_stays() -> None:
    assert asyncio.run(looks([a_pod("False")])) >= 5


def test_a_standby_does_not_ask() -> None:
    assert asyncio.run(looks([a_pod("False")], leads=False, seconds=0.3)) == 0


def test_without_the_right_it_seldom_asks() -> None:
    assert asyncio.run(looks([refusal(403, "Forbidden")], seconds=0.3)) == 1
