"""List, then watch, for ever: keeps a `cache` equal to what the API server has.

Started by `hand`, one per kind (and namespace). Nothing here gives up: whatever goes wrong, it tries again after a
jittered pause, from where it was; when the server no longer knows that version (410), it lists anew, and what
vanished meanwhile is told as deleted.
"""

import asyncio
import logging
import random
import time
from http import HTTPStatus
from typing import Any

from trainmaster.cluster.cache import Cache, Document, version_of
from trainmaster.cluster.client import Client, RefusalError, TooLargeError
from trainmaster.loop import UnavailableError

log = logging.getLogger("trainmaster.informer")

# A list comes in pages of so many objects, fewer where a page has more bytes than that: anybody may make large objects,
# and a page is in memory several times while it is read. One object always fits.
PAGE = 256
MOST_PAGE_BYTES = 8 << 20
WATCH_SECONDS = 290
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 8.0
# A watch that the server ends at once, again and again, must not become a storm.
SHORTEST_WATCH_SECONDS = 1.0
# A bookmark comes every minute or so. A watch that told nothing at all for longer may wait for versions that never come
# (etcd was restored from a backup), or something between keeps its events.
QUIET_SECONDS = 120.0
# Longer than the longest silence of a watch and the longest pause together: then its task itself hangs.
HUNG_SECONDS = 240.0
# Of one namespace among several: it has gone, or its Role has.
_NOT_OURS = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class GoneError(Exception):
    """The version to go on from is too old (410)."""


class Informer:
    """One kind of object in one namespace, or in all (scope "")."""

    def __init__(self, client: Client, path: str, cache: Cache[Any], scope: str = "", selector: str = "") -> None:
        self._client = client
        self._path = path
        self._cache = cache
        self._scope = scope
        self._selector = {"labelSelector": selector} if selector else {}
        self._version = ""
        self._failures = 0
        self._pulse = time.monotonic()
        self._turning: asyncio.Future[None] | None = None
        self.synced = asyncio.Event()  # all that there is has been read
        self.answered = asyncio.Event()  # or we have heard that there is nothing here for us

    @property
    def hung(self) -> bool:
        """Whether its task has not come round for too long, be it with good news or bad."""
        return time.monotonic() - self._pulse > HUNG_SECONDS

    def covers(self, namespace: str) -> bool:
        """Whether it watches this namespace."""
        return self._scope in ("", namespace)

    async def run(self) -> None:
        """Keep the cache fresh until cancelled."""
        while True:
            self._pulse = time.monotonic()
            self._turning = asyncio.ensure_future(self._turn())
            try:
                await self._turning
            except asyncio.CancelledError:
                if _is_being_cancelled():
                    raise
            except GoneError:
                log.info("%s: the version is too old; listing anew", self._path)
                self._version = ""
            except (UnavailableError, RefusalError) as error:
                await self._recover(error)
            except Exception:  # an object that nobody foresaw must not blind us to all the others for ever
                log.exception("%s: listing anew", self._path)
                self._version = ""
                await self._pause()

    async def list_anew(self) -> None:
        """Leave the watch, and return when all that was written until now has been read, or is not for us to read."""
        self._version = ""
        self.synced.clear()
        self.answered.clear()
        if self._turning:
            self._turning.cancel()
        await self.answered.wait()

    async def _turn(self) -> None:
        if not self._version:
            await self._list()
        began = time.monotonic()
        try:
            await self._watch()
        finally:
            if self._pulse <= began < time.monotonic() - QUIET_SECONDS:
                self._version = ""
        if time.monotonic() - began < SHORTEST_WATCH_SECONDS:
            await self._pause()

    async def _list(self) -> None:
        self._cache.begin_list(self._scope)
        params, size = dict(self._selector), PAGE
        while True:
            try:
                page = await self._client.get(self._path, {**params, "limit": str(size)}, MOST_PAGE_BYTES)
            except TooLargeError:
                if size == 1:
                    raise
                size = max(1, size // 4)
                continue
            self._pulse = time.monotonic()
            self._cache.page(self._scope, page.get("items") or ())
            more = page["metadata"].get("continue")
            if not more:
                break
            params, size = {**self._selector, "continue": more}, min(PAGE, size * 2)
        self._cache.replace(self._scope, (), version_of(page))
        self._version = page["metadata"]["resourceVersion"]
        self._came_round()
        self.synced.set()
        self.answered.set()

    async def _watch(self) -> None:
        params = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(WATCH_SECONDS // 2, WATCH_SECONDS)),  # noqa: S311  not for secrets
        }
        async for event in self._client.watch(self._path, params):
            self._take(event["type"], event["object"])

    def _take(self, kind: str, document: Document) -> None:
        if kind == "ERROR":
            if document.get("code") == HTTPStatus.GONE:
                raise GoneError
            raise UnavailableError(f"the watch of {self._path} failed: {document.get('message')}")
        if kind != "BOOKMARK":
            self._cache.apply(self._scope, kind, document)
        self._version = document["metadata"]["resourceVersion"]
        self._came_round()

    def _came_round(self) -> None:
        self._failures = 0
        self._pulse = time.monotonic()

    async def _recover(self, error: UnavailableError | RefusalError) -> None:
        if isinstance(error, RefusalError):
            self._version = ""
            if error.status == HTTPStatus.GONE:
                return
            if self._scope and error.status in _NOT_OURS:  # the other namespaces are served all the same
                self.answered.set()
        if self._failures == 0:
            log.warning("%s; trying again", error)
        await self._pause()

    async def _pause(self) -> None:
        """Longer each time, never the same for two."""
        self._failures += 1
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10))
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311  not for secrets


def _is_being_cancelled() -> bool:
    """Whether this task itself is to end, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
