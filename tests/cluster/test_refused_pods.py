"""What the platform keeps in mind of pods that could not be made."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from trainmaster.cluster import refusals
from trainmaster.core.decide import decide
from trainmaster.core.states.actions import Action, CreateReplica, DeleteReplica, EnsureObject, GiveOrders
from trainmaster.core.states.observed import Obstacle
from trainmaster.loop import UnavailableError
from trainmaster.wire import names
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import Orders

from tests.builders import a_job

from .fake_server import refusal
from .platform_stage import KEY, OWNER, POD, Stage, observed, refused


async def test_a_refused_wish_names_what_it_is_about_and_a_suspension_takes_it_back() -> None:
    stage = Stage()
    stage.see(a_job())
    async with stage.platform() as platform:
        job = a_job().build()
        for action in (CreateReplica(names.WORKER, 0, 0), EnsureObject("Service")):
            await platform.apply(job, action)
        assert [one.name for one in await refused(platform)] == ["digits-worker-0-0", "digits"]
        stage.see(a_job().at("Suspended"))
        assert await refused(platform) == ()
        stage.see(a_job().at("Pending"))
        assert await refused(platform) == ()
        await platform.apply(job, CreateReplica(names.WORKER, 0, 0))
        assert len(await refused(platform)) == 1, "it is tried at once"
    assert stage.asked == ["pods", "services", "pods"]


async def test_a_corrected_spec_is_tried_at_once_and_its_predecessor_stands_in_nobodys_way() -> None:
    stage, before = Stage(), a_job().with_workers(2)
    stage.see(before)
    async with stage.platform() as platform:
        await platform.apply(before.build(), WORKER)
        stage.see(before.with_workers(3))
        assert len(await refused(platform)) == 1, "another number of workers changes no pod"
        await platform.apply(before.with_workers(3).build(), WORKER)
        corrected = before.with_workers(2, image="team/corrected:1")
        stage.see(corrected)
        assert await refused(platform) == ()
        await platform.apply(corrected.build(), WORKER)
    assert stage.asked == ["pods", "pods"]


WORKER = CreateReplica(names.WORKER, 0, 0)
OTHER = [{**OWNER, "uid": "job-0"}]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ownerReferences": OTHER}, "and it does not belong to this job"),
        ({"ownerReferences": []}, "and it does not belong to this job"),
        ({"labels": {}}, "and its label trainmaster.dev/job was edited"),
        ({"labels": None}, "and its label trainmaster.dev/job was edited"),
        ({}, ""),
    ],
)
async def test_what_has_the_name_already_is_ours_by_owner_and_label(change: dict[str, Any], told: str) -> None:
    there = {"metadata": {**POD, "resourceVersion": "7", **change}, "spec": {}, "status": {}}
    answers = iter([refusal(409, "AlreadyExists"), web.json_response(there)])
    stage = Stage(lambda: next(answers))
    stage.see(a_job())
    async with stage.platform() as platform:
        await platform.apply(a_job().build(), WORKER)
        seen = await observed(platform)
    obstacle = Obstacle("NameTaken", f"no: AlreadyExists, {told}", name="digits-worker-0-0")
    assert [dataclasses.replace(one, since=None) for one in seen.refused] == ([obstacle] if told else [])
    assert len(seen.replicas) == (not told)


async def test_what_breaks_again_and_again_is_told_and_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 0.0)
    stage = Stage(lambda: refusal(500, "InternalError"))
    stage.see(a_job())
    job, delete = a_job().build(), DeleteReplica("digits-worker-1-0", "uid")
    async with stage.platform() as platform:
        for action in (WORKER, delete):
            await platform.apply(job, action)
        assert await refused(platform) == ()
        monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 60.0)
        actions: tuple[Action, ...] = (WORKER, delete, EnsureObject("Service"))
        for one in actions * 2:
            await platform.apply(job, one)
        told = [(one.reason, one.message, one.name) for one in await refused(platform)]
    words = "no: InternalError"
    assert told == [("InternalError", words, "digits-worker-0-0"), ("DeletionRefused", words, "")]
    assert len(stage.asked) == 7


async def test_a_server_that_is_away_stands_in_nobody_s_way() -> None:
    stage = Stage(lambda: web.Response(status=503))
    stage.see(a_job())
    async with stage.platform() as platform:
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await platform.apply(a_job().build(), WORKER)
        assert await refused(platform) == ()


async def test_what_is_refused_to_a_job_that_went_meanwhile_is_not_kept() -> None:
    stage = Stage()
    stage.see(a_job())
    async with stage.platform() as platform:
        stage.delete()
        await platform.apply(a_job().build(), WORKER)
        stage.see(a_job())
        assert await refused(platform) == ()


async def test_orders_for_a_pod_that_went_meanwhile_are_not_kept() -> None:
    stage = Stage()
    stage.see(a_job())
    async with stage.platform() as platform:
        await platform.apply(a_job().build(), GiveOrders((("gone", Orders(Verb.WAIT, 1, "")),)))
        assert not platform._intake._records


async def test_what_no_pod_can_be_made_of_is_told_like_a_refusal() -> None:
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": 5}]}}
    avoided = {"node": "node-1", "until": "9999-01-01T00:00:00Z", "reason": "It failed."}
    job = a_job().with_workers(1, affinity={"nodeAffinity": terms}).at("Running", avoidedNodes=[avoided])
    stage = Stage()
    stage.see(job)
    async with stage.platform() as platform:
        await platform.apply(job.build(), CreateReplica(names.WORKER, 0, 0))
        (obstacle,) = await refused(platform)
    assert (obstacle.reason, obstacle.name, stage.asked) == ("Invalid", "digits-worker-0-0", [])
    assert "spec.workers: no pod can be made of it (TypeError" in obstacle.message


@pytest.mark.parametrize("status", [403, 422])
async def test_a_refused_status_or_deletion_ends_no_job_that_gathers(status: int) -> None:
    stage = Stage(lambda: refusal(status, "Forbidden"))
    stage.see(a_job())
    async with stage.platform() as platform:
        job = a_job().build()
        with pytest.raises(UnavailableError):
            await platform.write_status(job, job.status)
        assert await refused(platform) == ()
        with pytest.raises(UnavailableError, match="waiting before the next try"):
            await platform.write_status(job, job.status)
        await platform.apply(job, DeleteReplica("digits-worker-1-0", "uid"))
        assert [(one.reason, one.name) for one in await refused(platform)] == [("DeletionRefused", "")]
        seen = await platform.observe(KEY)
    assert seen is not None
    decision = decide(*seen, datetime.now(UTC) + timedelta(hours=1))
    assert decision.status.phase == "Pending"
    assert "`kubectl delete pod`" in (decision.status.message or "")
