"""A pod that runs, and whose agent does not call in: people are told, and the job waits."""

import dataclasses
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from trainmaster.cluster.waiting import seconds
from trainmaster.core.decide import Decision, decide
from trainmaster.core.states.observed import Observed, Obstacle
from trainmaster.wire import codec, names

from tests.builders import a_heartbeat, a_job

from .platform_stage import Stage, observed

CREATED, STARTED = "2026-03-01T12:00:00Z", "2026-03-01T12:30:00Z"
JOB = a_job().with_metadata(creationTimestamp=CREATED)
RUNNING: dict[str, Any] = {
    "phase": "Running",
    "podIP": "10.0.0.9",
    "containerStatuses": [{"name": names.MAIN_CONTAINER, "state": {"running": {"startedAt": STARTED}}}],
}
WORDS = "digits-worker-0-0 runs, but its agent has not called in at http://operator"


def decided(seen: Observed, after: float) -> Decision:
    """What the core makes of it, so many seconds after the container started."""
    return decide(JOB.build(), seen, datetime.fromtimestamp(seconds(STARTED) + after, UTC))


def reason(decision: Decision) -> str:
    """Of the condition ReplicasReady."""
    return next(one.reason for one in decision.status.conditions if one.type == "ReplicasReady")


async def test_it_is_told_after_a_minute_with_a_cure_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: seconds(CREATED))  # the operator is older than the pod
    stage = Stage()
    stage.see(JOB)
    stage.see_pod(RUNNING)
    async with stage.platform() as platform:
        seen = await observed(platform)
        assert seen.replicas[0].obstacle == Obstacle("AgentSilent", WORDS, seconds(STARTED))
        early = decided(seen, after=59)
        assert reason(early) == "WaitingForReplicas"
        assert early.wake_at
        assert early.wake_at.timestamp() <= seconds(STARTED) + 60
        late = decided(seen, after=60)
        assert reason(late) == "AgentSilent"
        assert (late.status.message or "").startswith(f"{WORDS}. Its log tells how it fares: a NetworkPolicy")
        assert [event.reason for event in late.events if event.reason != "ModelNotKept"] == ["AgentSilent"]
        assert decided(seen, after=10**6).status.phase == "Pending"


async def test_who_has_called_in_is_not_silent() -> None:
    stage = Stage()
    stage.see(JOB)
    stage.see_pod(RUNNING)
    async with stage.platform() as platform, TestClient(TestServer(stage.intake.application())) as agent:
        beat = dataclasses.replace(a_heartbeat(), pod_uid="pod-1")
        await agent.post(names.HEARTBEAT_PATH, data=codec.encode(beat), headers={"Authorization": "Bearer x"})
        assert (await observed(platform)).replicas[0].obstacle is None


async def test_an_operator_that_has_just_started_gives_agents_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = seconds(STARTED) + 3600
    monkeypatch.setattr(time, "time", lambda: now)
    stage = Stage()
    stage.see(JOB)
    stage.see_pod(RUNNING)
    async with stage.platform() as platform:
        seen = await observed(platform)
    assert seen.replicas[0].obstacle == Obstacle("AgentSilent", WORDS, now)
    assert reason(decided(seen, after=3600 + 59)) == "WaitingForReplicas"
    assert reason(decided(seen, after=3600 + 60)) == "AgentSilent"


@pytest.mark.parametrize("state", [{"waiting": {"reason": "ContainerCreating"}}, {"terminated": {"exitCode": 1}}, {}])
async def test_who_does_not_run_is_not_silent(state: dict[str, Any]) -> None:
    stage = Stage()
    stage.see(JOB)
    stage.see_pod({**RUNNING, "containerStatuses": [{"name": names.MAIN_CONTAINER, "state": state}]})
    async with stage.platform() as platform:
        assert (await observed(platform)).replicas[0].obstacle is None
