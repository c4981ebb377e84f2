"""List and then watch pods or services, for ever, and so keep a `cache` equal to the API server.

TrainingJobs come through kopf (`operator`), with a `sweep` beside it.

It never gives up. After any error it pauses for a random time and goes on from where it was. When the server no longer
knows that version (410), it lists again, and objects that have vanished meanwhile are reported as deleted.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

from trainmaster.cluster.cache import Cache, Document, version_of
from trainmaster.cluster.client import ACCEPT, AnswerTooLargeError, Client, RefusalError
from trainmaster.cluster.scope_reader import ScopeReader
from trainmaster.loop import UnavailableError

log = logging.getLogger("trainmaster.informer")

# A list comes in pages of so many objects, fewer if a page has more bytes than that: users may create large objects,
# and a page is in memory several times while it is read. A page of one object always fits.
PAGE = 256
MOST_PAGE_BYTES = 8 << 20
WATCH_SECONDS = 290
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 8.0
# A server may end each watch at once: then pause, so that it does not get a storm of requests.
SHORTEST_WATCH_SECONDS = 1.0
# A bookmark comes about every minute. A watch without any event for longer may wait for versions that never come
# (etcd was restored from a backup), or a proxy holds its events back.
QUIET_SECONDS = 120.0
# For one of several namespaces, these mean that it is deleted, or its Role is.
NOT_OURS = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class GoneError(Exception):
    """The API server no longer knows the version to go on from (410)."""


async def pages(
    client: Client, path: str, selector: Mapping[str, str], accept: str = ACCEPT
) -> AsyncIterator[Document]:
    """Yield a list in pages of at most PAGE objects and MOST_PAGE_BYTES bytes. All are of one moment.

    Raises:
        RefusalError: the server said no, for example 410 where reading took so long that it forgot that moment.
        UnavailableError: no answer, or not now.
    """
    params, size = dict(selector), PAGE
    while True:
        try:
            page = await client.get(path, {**params, "limit": str(size)}, MOST_PAGE_BYTES, accept)
        except AnswerTooLargeError:
            if size == 1:
                raise
            size = max(1, size // 4)
            continue
        yield page
        more = page["metadata"].get("continue")
        if not more:
            return
        params, size = {**selector, "continue": more}, min(PAGE, size * 2)


class Informer(ScopeReader):
    """Informer lists and watches one kind of object."""

    def __init__(self, client: Client, path: str, cache: Cache[Any], scope: str = "", selector: str = "") -> None:
        super().__init__(client, path, scope)
        self._cache = cache
        self._selector = {"labelSelector": selector} if selector else {}
        self._version = ""
        self._turning: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Keep the cache fresh until cancelled."""
        while True:
            self._pulse = time.monotonic()
            self._turning = asyncio.ensure_future(self._turn())
            try:
                await self._turning
            except asyncio.CancelledError:
                # This task itself is being cancelled, and not only what it waits for.
                task = asyncio.current_task()
                if task is not None and task.cancelling() > 0:
                    raise
            except GoneError:
                log.info("%s: the version is too old; listing anew", self._path)
                self._version = ""
            except (UnavailableError, RefusalError) as error:
                await self._recover(error)
            except Exception:  # an unexpected object must not end the watch of all others
                log.exception("%s: listing anew", self._path)
                self._version = ""
                await self._pause()

    async def list_anew(self) -> None:
        """List again, and return when all that was written until now has been read, or may not be read by us."""
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
        async for page in pages(self._client, self._path, self._selector):
            self._pulse = time.monotonic()
            self._cache.page(self._scope, page.get("items") or ())
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
            if self._scope and error.status in NOT_OURS:  # the operator still serves the other namespaces
                self.answered.set()
        if self._failures == 0:
            log.warning("%s; trying again", error)
        await self._pause()

    async def _pause(self) -> None:
        self._failures += 1
        await asyncio.sleep(pause_seconds(self._failures))


def pause_seconds(failures: int) -> float:
    """Return a random time that grows with each failure in a row, at most LONGEST_PAUSE_SECONDS."""
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 10))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  not for secrets
