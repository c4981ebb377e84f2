"""Objects beside pods on the API server: one of any kind is a row of a table, known by its owner, and deleted by it."""

from typing import Any

import pytest
from aiohttp import web
from trainmaster.api.job import TrainingJob
from trainmaster.cluster import manifests, objects
from trainmaster.cluster.objects import ObjectKind
from trainmaster.core.states.actions import DeleteObject, EnsureObject

from tests.builders import a_job

from .fake_server import refusal
from .platform_stage import OWNER, Stage, observed

KIND = "ConfigMap"


def config_map(job: TrainingJob) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": KIND, "metadata": manifests.metadata(job), "data": {"a": "b"}}


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objects.TABLE, KIND, ObjectKind("/api/v1", "configmaps", config_map, watched=False))


def there(owner: str) -> dict[str, Any]:
    document = config_map(a_job().build())
    owners = [{**OWNER, "uid": owner}]
    return {**document, "metadata": {**document["metadata"], "uid": "map-1", "ownerReferences": owners}}


async def test_a_kind_that_is_a_row_is_made_known_and_deleted() -> None:
    answers = iter([there("job-1"), there("job-1"), {}])
    stage = Stage(lambda: web.json_response(next(answers)))
    stage.see(a_job())
    async with stage.platform() as platform:
        assert KIND in (await observed(platform)).kinds - (await observed(platform)).objects
        await platform.apply(a_job().build(), EnsureObject(KIND))
        assert KIND in (await observed(platform)).objects
        await platform.apply(a_job().build(), DeleteObject(KIND))
        assert KIND not in (await observed(platform)).objects
    assert stage.asked == ["configmaps", "digits", "digits"]


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
