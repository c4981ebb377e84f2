"""Events for people, and refusals that are remembered: said once, tried again with patience."""

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web
from trainmaster.cluster import reporting
from trainmaster.cluster.client import AnswerError, BrokenError, RefusalError
from trainmaster.cluster.refusals import Refusals, obstacle_of
from trainmaster.cluster.reporting import LONGEST_NOTE, EventReporter
from trainmaster.core.situation import obstacles
from trainmaster.core.states.actions import PostEvent
from trainmaster.core.states.observed import Obstacle

from tests.builders import a_job

from .fake_server import refusal, served

JOB = a_job().build()


async def _posted(*events: PostEvent, answers: list[web.Response] | None = None) -> list[dict[str, Any]]:
    """What arrives at the server of these events, followed by one that ends the wait."""
    arrived: list[dict[str, Any]] = []
    last = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        arrived.append(body)
        if body["reason"] == "Last":
            last.set()
        return answers.pop(0) if answers else web.json_response({})

    async with served(handler) as client:
        reporter = EventReporter(client)
        for event in (*events, PostEvent("Normal", "Last", "")):
            reporter.post(JOB, event)
        task = asyncio.create_task(reporter.run())
        await asyncio.wait_for(last.wait(), 100)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return arrived[:-1]


async def test_the_same_is_not_told_twice() -> None:
    once, other = PostEvent("Normal", "Running", "a"), PostEvent("Normal", "Running", "b")
    arrived = await _posted(once, once, other, once)
    assert [event["note"] for event in arrived] == ["a", "b"]


async def test_it_is_told_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "AGAIN_SECONDS", -1.0)
    once = PostEvent("Normal", "Running", "a")
    assert len(await _posted(once, once)) == 2


async def test_a_long_message_fits_in_bytes() -> None:
    (event,) = await _posted(PostEvent("Warning", "Failed", "€" * 5000))
    assert len(event["note"].encode()) <= LONGEST_NOTE


async def test_an_event_that_is_refused_stops_no_other() -> None:
    events = [PostEvent("Normal", "Running", text) for text in "ab"]
    arrived = await _posted(*events, answers=[refusal(403, "Forbidden")])
    assert [event["note"] for event in arrived] == ["a", "b"]


def test_a_refusal_rests_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refused, pauses = Refusals(), []
    for _ in range(9):
        pauses.append(refused.remember("job", "pods/a", Obstacle("Forbidden", "full")))
        assert refused.rests("job", "pods/a")
        now += pauses[-1]
        assert not refused.rests("job", "pods/a")
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_refusal_is_told_once_and_since_when_until_it_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 100.0)
    refused = Refusals()
    for wish in ("pods/a", "pods/b"):
        refused.remember("job", wish, Obstacle("Forbidden", "full"))
    monkeypatch.setattr(time, "time", lambda: 200.0)
    refused.remember("job", "pods/a", Obstacle("Forbidden", "full"))
    assert refused.obstacles("job") == (Obstacle("Forbidden", "full", 100.0),)
    refused.granted("job", "pods/a")
    refused.granted("job", "pods/b")
    assert refused.obstacles("job") == ()
    refused.remember("job", "pods/a", Obstacle("Forbidden", "full"))
    refused.forget("job")
    assert refused.obstacles("job") == ()


def test_a_wish_that_is_not_made_any_more_is_forgotten_and_one_that_stands_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refused = Refusals()
    for wish in ("create pods/a", "create pods/b"):
        refused.remember("job", wish, Obstacle("Forbidden", "full", name=wish))
    for _ in range(9):
        now += refused.remember("job", "create pods/a", Obstacle("Forbidden", "full", name="a"))
        assert "a" in {obstacle.name for obstacle in refused.obstacles("job")}
    assert [obstacle.name for obstacle in refused.obstacles("job")] == ["a"]


def test_what_is_withdrawn_is_a_new_wish_when_it_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 100.0)
    refused = Refusals()
    for wish in ("create pods/a", "delete b"):
        refused.remember("job", wish, Obstacle("Forbidden", wish))
    refused.withdraw("job", "create")
    assert [obstacle.message for obstacle in refused.obstacles("job")] == ["delete b"]
    monkeypatch.setattr(time, "time", lambda: 200.0)
    assert refused.remember("job", "create pods/a", Obstacle("Forbidden", "full")) == 1.0
    assert refused.obstacles("job")[-1] == Obstacle("Forbidden", "full", 200.0)


def test_what_breaks_is_told_when_it_breaks_again() -> None:
    refused = Refusals()
    assert refused.remember("job", "pods/a", Obstacle("InternalError", "no leader"), hiccup=True) == 1.0
    assert refused.rests("job", "pods/a")
    assert refused.obstacles("job") == ()
    assert refused.remember("job", "pods/a", Obstacle("InternalError", "no leader"), hiccup=True) == 2.0
    assert [obstacle.message for obstacle in refused.obstacles("job")] == ["no leader"]


WEBHOOK = 'admission webhook "quota.example.com" denied the request: no more today'
POLICY = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'labels' with binding 'all' denied request: no owner"
REFUSED = [
    (400, "BadRequest", WEBHOOK, "DeniedByPolicy"),
    (403, "Forbidden", WEBHOOK, "DeniedByPolicy"),
    (422, "Invalid", POLICY, "DeniedByPolicy"),
    (400, "BadRequest", "strict decoding error", "Invalid"),
    (403, "Forbidden", 'pods "a" is forbidden: violates PodSecurity "restricted:latest"', "Forbidden"),
    (403, "Forbidden", 'pods "a" is forbidden: failed quota: gpus: must specify limits.cpu', "AmountsMissing"),
    (422, "Invalid", 'Pod "a" is invalid: spec.dnsPolicy', "Invalid"),
]


@pytest.mark.parametrize(("status", "reason", "message", "expected"), REFUSED)
def test_what_a_policy_denies_is_waited_for_and_what_is_wrong_is_not(
    status: int, reason: str, message: str, expected: str
) -> None:
    obstacle = obstacle_of(RefusalError("POST /pods", status, reason, message))
    assert obstacle == Obstacle(expected, message)
    assert (obstacle.reason in obstacles.HOPELESS) == (expected == "Invalid")
    assert obstacles.has_its_time(obstacle.reason) == (expected != "Invalid")


QUOTA = 'pods "a" is forbidden: exceeded quota: gpus, requested: pods=1, used: pods=8, limited: pods=8'
ENDING = 'pods "a" is forbidden: unable to create new content in namespace lab because it is being terminated'
AWAY = 'Internal error occurred: failed calling webhook "quota.example.com": failed to call webhook: connection refused'
ENDLESS = [
    (RefusalError, 403, "Forbidden", QUOTA, "QuotaExceeded"),
    (RefusalError, 403, "Forbidden", ENDING, "NamespaceTerminating"),
    (BrokenError, 500, "InternalError", AWAY, "InternalError"),
    (BrokenError, 500, "InternalError", "Internal error occurred: etcdserver: no leader", "InternalError"),
    (BrokenError, 504, "Timeout", "the webhook did not answer", "InternalError"),
]


@pytest.mark.parametrize(("kind", "status", "reason", "message", "expected"), ENDLESS)
def test_what_is_merely_full_or_broken_is_waited_for_without_end(
    kind: type[AnswerError], status: int, reason: str, message: str, expected: str
) -> None:
    obstacle = obstacle_of(kind("POST /pods", status, reason, message))
    assert obstacle == Obstacle(expected, message)
    assert obstacle.reason in obstacles.ENDLESS


def test_a_webhook_that_denies_with_a_status_of_its_own_is_a_policy() -> None:
    assert obstacle_of(BrokenError("POST /pods", 500, "", WEBHOOK)).reason == "DeniedByPolicy"
