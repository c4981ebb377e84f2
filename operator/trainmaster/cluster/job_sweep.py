"""List the names and versions of all TrainingJobs now and then, so that it is known when all have been read.

kopf's watch brings the documents (`operator`). It says neither when it has brought all of them, nor what vanished while
it was broken. A sweep is the answer to both: at the start, after kopf has listed anew, and every SWEEP_SECONDS.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from trainmaster.cluster import informer
from trainmaster.cluster.cache import Name, name_of, version_of
from trainmaster.cluster.client import Client, RefusalError
from trainmaster.cluster.informer import NOT_OURS, pause_seconds
from trainmaster.cluster.scope_reader import ScopeReader
from trainmaster.cluster.swept_cache import SweepListing, SweptCache
from trainmaster.loop import UnavailableError

log = logging.getLogger("trainmaster.sweep")

SWEEP_SECONDS = 60.0
# kopf tells of each object when it lists anew; one sweep so long after the first of them is enough.
RELISTED_SECONDS = 1.0
# If kopf brings none of the missing documents for so long, its watch is begun anew; each time in a row waits longer.
LATE_SECONDS = 5.0
LONGEST_LATE_SECONDS = 60.0
NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
CURES: dict[int, str] = {
    HTTPStatus.FORBIDDEN: "the operator needs the rights get, list and watch on trainingjobs; the chart grants them",
    HTTPStatus.NOT_FOUND: "the CustomResourceDefinition is missing: install the chart, or apply `trainmaster crd`",
}


class Sweep(ScopeReader):
    """Sweep lists the jobs. `restart_watch(why)` begins kopf's watch anew."""

    def __init__(
        self, client: Client, path: str, cache: SweptCache[Any], scope: str, restart_watch: Callable[[str], None]
    ) -> None:
        super().__init__(client, path, scope)
        self._cache = cache
        self._restart_watch = restart_watch
        self._missing = False  # the kind itself
        self._patience = LATE_SECONDS
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            self._pulse = time.monotonic()
            self._due.clear()
            try:
                await self._turn()
            except (UnavailableError, RefusalError) as error:
                await self._recover(error)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), SWEEP_SECONDS)

    async def list_anew(self) -> None:
        """Sweep now, and return when all that was written until now has been read, or may not be read by us."""
        self.synced.clear()
        self.answered.clear()
        self._due.set()
        await self.answered.wait()

    def relisted(self) -> None:
        """Sweep soon: kopf lists anew, so something may have vanished before that."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RELISTED_SECONDS, self._be_due)

    def _be_due(self) -> None:
        self._timer = None
        self._due.set()

    async def _turn(self) -> None:
        begun, versions, version = self._cache.newest(self._scope), dict[Name, int](), 0
        async for page in informer.pages(self._client, self._path, {}, NAMES_ONLY):
            self._pulse = time.monotonic()
            version = version_of(page)
            versions |= {name_of(item): version_of(item) for item in page.get("items") or ()}
        listing = self._cache.sweep(self._scope, versions, version, begun)
        if self._missing:  # kopf does not look again for a kind that was not there
            self._restart_watch("TrainingJobs are served again")
        elif version < begun:
            self._restart_watch("the API server's versions are older than before")
        self._missing, self._failures = False, 0
        await self._completed(listing)
        if not self._due.is_set():  # `list_anew` may have been called meanwhile: it wants a later list
            self.synced.set()
            self.answered.set()

    async def _completed(self, listing: SweepListing) -> None:
        """Wait until kopf has brought all documents of a list. If it brings none, begin its watch and sweep anew."""
        while listing.missing:
            before = len(listing.missing)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(listing.complete.wait(), self._patience)
            if len(listing.missing) == before:
                self._patience = min(LONGEST_LATE_SECONDS, 2 * self._patience)
                self._restart_watch(f"it has not brought {before} TrainingJobs that are listed")
                self._due.set()  # some may have been deleted meanwhile
                return
            self._pulse = time.monotonic()
        self._patience = LATE_SECONDS

    async def _recover(self, error: UnavailableError | RefusalError) -> None:
        status = error.status if isinstance(error, RefusalError) else None
        if status == HTTPStatus.GONE:  # reading took so long that the list's moment is forgotten
            return
        self._missing = self._missing or status == HTTPStatus.NOT_FOUND
        if self._scope and status in NOT_OURS:  # the operator still serves the other namespaces
            self.answered.set()
        if self._failures == 0:
            cure = CURES.get(status) if status else None
            log.warning("%s%s; trying again", error, f": {cure}" if cure else "")
        self._failures += 1
        await asyncio.sleep(pause_seconds(self._failures))
