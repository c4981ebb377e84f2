"""A work queue that never holds a key twice and never gives a key to two workers at once.

The shape is that of client-go's workqueue (k8s.io/client-go/util/workqueue): a key that is added while it is being
worked on is queued again when its worker is done, so no change is ever missed.
"""

import asyncio
from typing import NamedTuple

FIRST_PAUSE_SECONDS = 0.25


class Key(NamedTuple):
    """Which job."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class WorkQueue:
    """For one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[Key, None] = {}  # ordered, each once
        self._busy: set[Key] = set()
        self._dirty: set[Key] = set()  # added while busy
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._ready = asyncio.Event()

    def add(self, key: Key) -> None:
        """Have `key` worked on soon."""
        timer = self._timers.pop(key, None)
        if timer:
            timer.cancel()
        if key in self._busy:
            self._dirty.add(key)
            return
        self._waiting[key] = None
        self._ready.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Have `key` worked on in a while, unless something adds it before. Of two such wishes the earlier counts."""
        if key in self._waiting or key in self._dirty:
            return
        loop, old = asyncio.get_running_loop(), self._timers.get(key)
        if old and old.when() <= loop.time() + seconds:
            return
        if old:
            old.cancel()
        self._timers[key] = loop.call_later(seconds, self.add, key)

    async def get(self) -> Key:
        """The next key; `done` must follow."""
        while not self._waiting:
            self._ready.clear()
            await self._ready.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._busy.add(key)
        return key

    def done(self, key: Key) -> None:
        """The key's worker is through with it."""
        self._busy.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def __len__(self) -> int:
        return len(self._waiting)


class Pauses:
    """How long to wait before a key is tried again: twice as long after each failure, up to a limit."""

    def __init__(self) -> None:
        self._next: dict[Key, float] = {}

    def longer(self, key: Key, longest: float) -> float:
        """It failed: seconds until the next try."""
        pause = min(self._next.get(key, FIRST_PAUSE_SECONDS), longest)
        self._next[key] = 2 * pause
        return pause

    def forget(self, key: Key) -> None:
        """It went well."""
        self._next.pop(key, None)
