"""Objects beside pods on the API server: a third kind, which is two rows, is made, known by its owner, and deleted."""

from typing import Any

import pytest
from aiohttp import web
from trainmaster.api.job import TrainingJob
from trainmaster.cluster import job_objects, manifests
from trainmaster.cluster.cluster_platform import ClusterPlatform
from trainmaster.cluster.job_objects import ObjectKind
from trainmaster.core.decide import decide
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.objects import KINDS, JobObjectKind
from trainmaster.core.states.actions import Action, CreateReplica, DeleteObject, EnsureObject

from tests.builders import NOON, a_job

from .fake_server import refusal
from .platform_stage import KEY, OWNER, Stage, observed

KIND = "ConfigMap"


def config_map(job: TrainingJob) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": KIND, "metadata": manifests.metadata(job), "data": {"a": "b"}}


def has_two_workers(facts: Facts) -> bool:
    return facts.job.spec.workers.replicas == 2


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, KIND, JobObjectKind(wanted=has_two_workers, before_replicas=True))
    monkeypatch.setitem(job_objects.TABLE, KIND, ObjectKind("/api/v1", "configmaps", config_map, watched=False))


def there(owner: str) -> dict[str, Any]:
    document = config_map(a_job().build())
    owners = [{**OWNER, "uid": owner}]
    return {**document, "metadata": {**document["metadata"], "uid": "map-1", "ownerReferences": owners}}


async def decided(platform: ClusterPlatform, *kinds: type[Action]) -> list[Action]:
    """Return what `decide` makes of what the platform sees, as far as it is of these kinds."""
    seen = await platform.observe(KEY)
    assert seen is not None
    return [action for action in decide(*seen, NOON).actions if isinstance(action, kinds)]


def test_each_kind_is_a_row_of_both_tables() -> None:
    assert set(KINDS) == set(job_objects.TABLE)


async def test_a_kind_that_is_two_rows_is_made_before_pods_known_and_deleted() -> None:
    answers = iter([there("job-1"), there("job-1"), {}])
    stage = Stage(lambda: web.json_response(next(answers)))
    stage.see(a_job().with_workers(2))
    async with stage.platform() as platform:
        job = a_job().build()
        assert await decided(platform, EnsureObject, CreateReplica) == [EnsureObject("Service"), EnsureObject(KIND)]
        await platform.apply(job, EnsureObject(KIND))
        assert KIND in (await observed(platform)).objects
        assert len(await decided(platform, CreateReplica)) == 2
        stage.see(a_job().with_workers(1))
        assert await decided(platform, DeleteObject) == [DeleteObject(KIND)]
        await platform.apply(job, DeleteObject(KIND))
        assert await decided(platform, DeleteObject) == []
    assert stage.asked == ["configmaps", "digits", "digits"]


async def test_a_refused_object_stands_in_the_way_of_each_pod() -> None:
    stage = Stage(lambda: refusal(403, "Forbidden"))
    stage.see(a_job().with_workers(2))
    async with stage.platform() as platform:
        await platform.apply(a_job().build(), EnsureObject(KIND))
        assert [one.name for one in (await observed(platform)).refused] == [""]
        assert await decided(platform, CreateReplica) == []


async def test_a_foreign_object_of_the_same_name_is_not_deleted() -> None:
    stage = Stage(lambda: web.json_response(there("another")))
    stage.see(a_job())
    async with stage.platform() as platform:
        await platform.apply(a_job().build(), DeleteObject(KIND))
    assert stage.asked == ["digits"]


async def test_an_object_that_may_not_be_deleted_is_told_and_rests() -> None:
    stage = Stage(lambda: refusal(403, "Forbidden"))
    stage.see(a_job())
    async with stage.platform() as platform:
        for _ in range(2):
            await platform.apply(a_job().build(), DeleteObject(KIND))
        assert [one.reason for one in (await observed(platform)).refused] == ["DeletionRefused"]
    assert stage.asked == ["digits"]
