"""Jobs that weigh much: what is kept of them is little, and they are looked at all the same."""

import asyncio
import gc
import json
import weakref
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError
from trainmaster.api.job import TrainingJob
from trainmaster.cluster import informer as informer_module
from trainmaster.cluster import jobs
from trainmaster.cluster.cache import Cache
from trainmaster.cluster.informer import Informer
from trainmaster.queueing import Key

from tests.builders import a_job

from .fake_server import served
from .platform_stage import Stage
from .test_informer import listing

KEY = Key("lab", "digits")
LARGE = a_job().where(workers={"affinity": {"nodeAffinity": {"x": "y" * jobs.KEPT}}}).with_workers(1)
TOO_LARGE = a_job().where(workers={"affinity": {"nodeAffinity": {"x": "y" * 1_200_000}}})


def document(job: Any, version: int = 1) -> dict[str, Any]:
    metadata = {**job.metadata, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": dict(job.spec), "status": dict(job.status)}


def test_little_is_kept_of_a_large_job_and_a_change_of_it_is_seen() -> None:
    record = jobs.read(document(LARGE))
    assert record.text == ""
    assert jobs.read(document(LARGE)) == record
    assert jobs.read(document(LARGE.at("Running"))) != record
    assert jobs.read(document(a_job())).text


def test_a_job_that_cannot_be_read_is_let_go_of_at_once() -> None:
    """Python looks for cycles seldom, and a hundred such jobs would be a hundred megabytes until then."""
    record = jobs.read({**document(a_job()), "spec": {"unknown": "x" * 1000}}, jobs.MOST)
    assert isinstance(record.parsed, ValidationError)
    gone = weakref.ref(record)
    gc.disable()
    try:
        del record
        assert gone() is None
    finally:
        gc.enable()


async def test_a_large_job_is_read_when_it_is_looked_at() -> None:
    stage = Stage(lambda: web.json_response(document(LARGE)))
    stage.see(LARGE)
    async with stage.platform() as platform:
        seen = await platform.observe(KEY)
        assert seen is not None
        assert seen[0] == TrainingJob.parse(document(LARGE))
    assert stage.asked == ["digits"]


async def test_a_large_job_that_has_gone_is_forgotten() -> None:
    stage = Stage(lambda: web.json_response({"kind": "Status", "reason": "NotFound"}, status=404))
    stage.see(LARGE)
    async with stage.platform() as platform:
        assert await platform.observe(KEY) is None
    assert len(stage.jobs) == 0


async def test_a_job_that_weighs_too_much_is_told_so() -> None:
    said: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            said.append(await request.json())
        return web.json_response(document(TOO_LARGE))

    stage = Stage()
    stage.answer = answer  # type: ignore[method-assign]
    stage.see(TOO_LARGE)
    async with stage.platform() as platform:
        assert await platform.observe(KEY) is None
    assert "262144 is the most. Put what is large into ConfigMaps" in json.dumps(said)


async def test_a_list_of_large_objects_comes_in_smaller_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "MOST_PAGE_BYTES", 10_000)
    everything = [document(a_job().named(f"job-{number}"), number + 1) for number in range(40)]
    for one in everything:
        one["spec"]["x"] = "y" * 1000
    sizes: list[int] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.Event().wait()
        start, size = int(request.query.get("continue", 0)), int(request.query["limit"])
        sizes.append(size)
        page = listing(99, *everything[start : start + size])
        more = {"continue": str(start + size)} if start + size < len(everything) else {}
        body = json.loads(page.body)  # type: ignore[arg-type]
        body["metadata"] |= more
        return web.json_response(body)

    async with served(handler) as client:
        cache = Cache(jobs.read, lambda record: record.key, lambda _old, _new: None)
        informer = Informer(client, "/jobs", cache)
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 200)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(cache) == 40
    assert min(sizes) <= 8
