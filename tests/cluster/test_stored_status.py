"""A status is written over the version of the job that was observed, and over no other."""

import contextlib
from typing import Any

import pytest
from aiohttp import web
from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cluster.cluster_platform import ClusterPlatform
from trainmaster.loop import ConflictError

from tests.builders import a_job

from .fake_server import refusal
from .platform_stage import KEY, Stage

NEW = TrainingJobStatus(attempt=1)


class Shelf(Stage):
    """A server that keeps one job. What its users do to it no watch tells."""

    def __init__(self) -> None:
        super().__init__()
        job = a_job()
        self.see(job)
        self.metadata: dict[str, Any] = {**job.metadata, "resourceVersion": str(self.version)}
        self.spec, self.status = dict(job.spec), dict(job.status)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The job as it is; or with a new status, from whoever knows it as it is."""
        if request.method == "PATCH":
            version, status = (operation["value"] for operation in await request.json())
            if version != self.metadata["resourceVersion"]:
                return refusal(409, "Conflict")
            self.status = status
            self._turn()
        return web.json_response({"metadata": self.metadata, "spec": self.spec, "status": self.status})

    def edit(self) -> None:
        """A user suspends it."""
        self.spec["suspend"] = True
        self._turn()

    def _turn(self) -> None:
        self.version += 1
        self.metadata["resourceVersion"] = str(self.version)


async def observed(platform: ClusterPlatform) -> TrainingJob:
    """The job as the loop sees it."""
    seen = await platform.observe(KEY)
    assert seen is not None
    return seen[0]


async def test_a_changed_job_keeps_its_status() -> None:
    shelf = Shelf()
    async with shelf.platform() as platform:
        job = await observed(platform)
        shelf.edit()
        with contextlib.suppress(ConflictError):
            await platform.write_status(job, NEW)
        assert shelf.status == {}


async def test_a_change_is_told_and_seen() -> None:
    shelf = Shelf()
    async with shelf.platform() as platform:
        job = await observed(platform)
        shelf.edit()
        with pytest.raises(ConflictError):
            await platform.write_status(job, NEW)
        changed = await observed(platform)
        assert changed.spec.suspend
        await platform.write_status(changed, NEW)
        assert shelf.status["attempt"] == 1
        assert (await observed(platform)).status == NEW
