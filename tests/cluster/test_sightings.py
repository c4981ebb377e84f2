"""Since when a pod cannot start, of which the API server tells no time."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from trainmaster.cluster.cluster_platform import ClusterPlatform
from trainmaster.cluster.waiting import seconds
from trainmaster.core.decide import Decision, decide
from trainmaster.core.states.observed import Obstacle

from tests.builders import a_job

from .platform_stage import KEY, Stage, observed

LONG_AGO = "2026-03-01T12:00:00Z"
JOB = a_job().with_metadata(creationTimestamp=LONG_AGO)
PLACED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG_AGO}


def waits(reason: str) -> dict[str, Any]:
    """A pod whose container cannot start."""
    waiting = {"waiting": {"reason": reason, "message": "i/o timeout"}}
    return {"phase": "Pending", "conditions": [PLACED], "containerStatuses": [{"name": "trainer", "state": waiting}]}


def timed_out(reason: str, since: float) -> Obstacle:
    """What is told of such a pod."""
    return Obstacle(reason, "container trainer: i/o timeout", since, container="trainer")


def no_place(message: str) -> dict[str, Any]:
    """A pod that no node takes."""
    unplaced = {**PLACED, "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [unplaced]}


async def decided(platform: ClusterPlatform, later: float = 0.0) -> Decision:
    """What the core makes of it, so many seconds from now."""
    seen = await platform.observe(KEY)
    assert seen is not None
    return decide(*seen, datetime.now(UTC) + timedelta(seconds=later))


MISSING = 'persistentvolumeclaim "data" not found'


@pytest.mark.parametrize(
    ("before", "trouble"),
    [
        (no_place("0/3 nodes are available"), waits("ErrImagePull")),
        (waits("ContainerCreating"), waits("CreateContainerError")),
        (no_place("0/3 nodes are available"), no_place(MISSING)),
    ],
    ids=["a full cluster", "a long pull", "a claim that goes"],
)
async def test_after_a_long_wait_a_hiccup_ends_nothing(before: dict[str, Any], trouble: dict[str, Any]) -> None:
    stage = Stage()
    stage.see(JOB)
    async with stage.platform() as platform:
        for status in (before, trouble):
            stage.see_pod(status)
            decision = await decided(platform)
            assert decision.status.phase == "Pending", decision.status.message
        assert (await decided(platform, 590)).status.phase == "Pending"
        assert (await decided(platform, 601)).status.phase == "Failed"


async def test_it_counts_from_the_first_sight_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.see(JOB)

    async def seen_at(now: float, reason: str) -> Obstacle | None:
        monkeypatch.setattr(time, "time", lambda: now)
        stage.see_pod(waits(reason))
        return (await observed(platform)).replicas[0].obstacle

    async with stage.platform() as platform:
        assert await seen_at(100.0, "ErrImagePull") == timed_out("ImagePullBackOff", 100.0)
        assert await seen_at(200.0, "RegistryUnavailable") == timed_out("RegistryUnavailable", 100.0)
        told = await seen_at(300.0, "ContainerCreating")
        assert told is not None
        assert (told.reason, told.since) == ("ContainerCreating", seconds(LONG_AGO)), "it has a time of its own"
        assert await seen_at(400.0, "ErrImagePull") == timed_out("ImagePullBackOff", 400.0)
        platform.forget("job-1")
        assert await seen_at(500.0, "ErrImagePull") == timed_out("ImagePullBackOff", 500.0)
