"""Define a work queue that never holds a key twice and never gives a key to two workers at once.

It works as client-go's workqueue (k8s.io/client-go/util/workqueue): a key that is added while it is being worked on is
queued again when its worker is done, so no change is ever missed. Namespaces take turns, so one with many jobs delays a
job of another by only one of them. Requests wait in `RoundRobin` too.
"""

import asyncio
from collections import Counter
from contextvars import ContextVar
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.25
# At most so many jobs of one namespace are worked on at once, so that workers are left for the others.
MOST_OF_NAMESPACE = 32


class Key(NamedTuple):
    """Name a job."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# The job that is being worked on, if any: requests made for it wait in its turn.
WORKED_ON: ContextVar[Key | None] = ContextVar("WORKED_ON", default=None)


class RoundRobin(Generic[T]):
    """Hold what waits: namespaces take turns, in each its jobs take turns, of a job the first comes first."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, dict[T, None]]] = {}
        self._size = 0

    def add(self, key: Key, thing: T) -> None:
        """Put it at the end of its job's line, unless it is there already."""
        line = self._waiting.setdefault(key.namespace, {}).setdefault(key.name, {})
        self._size += thing not in line
        line[thing] = None

    def pop(self) -> T:
        """Remove the next one and return it. There must be one."""
        namespace = next(iter(self._waiting))
        jobs = self._waiting.pop(namespace)
        name = next(iter(jobs))
        line = jobs.pop(name)
        thing = next(iter(line))
        del line[thing]
        if line:
            jobs[name] = line  # at the end: the others of the namespace come first
        if jobs:
            self._waiting[namespace] = jobs
        self._size -= 1
        return thing

    def __contains__(self, place: tuple[Key, T]) -> bool:
        key, thing = place
        return thing in self._waiting.get(key.namespace, {}).get(key.name, {})

    def __len__(self) -> int:
        return self._size


class WorkQueue:
    """A work queue serves one event loop."""

    def __init__(self) -> None:
        self._waiting: RoundRobin[Key] = RoundRobin()
        self._busy: set[Key] = set()
        self._busy_of: Counter[str] = Counter()  # by namespace
        self._held: dict[str, dict[Key, None]] = {}  # of namespaces with MOST_OF_NAMESPACE jobs worked on
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
        if key not in self._held.get(key.namespace, ()):
            self._waiting.add(key, key)
            self._ready.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Have `key` worked on after `seconds`, unless it is added before. Of two such calls the earlier counts."""
        if (key, key) in self._waiting or key in self._dirty or key in self._held.get(key.namespace, ()):
            return
        loop, old = asyncio.get_running_loop(), self._timers.get(key)
        if old and old.when() <= loop.time() + seconds:
            return
        if old:
            old.cancel()
        self._timers[key] = loop.call_later(seconds, self.add, key)

    async def get(self) -> Key:
        """Return the next key, when there is one; `done` must follow."""
        while True:
            while not self._waiting:
                self._ready.clear()
                await self._ready.wait()
            key = self._waiting.pop()
            if self._busy_of[key.namespace] < MOST_OF_NAMESPACE:
                self._busy.add(key)
                self._busy_of[key.namespace] += 1
                return key
            self._held.setdefault(key.namespace, {})[key] = None

    def done(self, key: Key, rest: float = 0.0) -> None:
        """Mark the key's work as done. If it was added meanwhile, it is worked on again after `rest` seconds."""
        self._busy.discard(key)
        self._busy_of[key.namespace] -= 1
        held = self._held.get(key.namespace)
        if held:
            freed = next(iter(held))
            del held[freed]
            self.add(freed)
        else:
            self._held.pop(key.namespace, None)
        if not self._busy_of[key.namespace]:
            del self._busy_of[key.namespace]
        if key in self._dirty:
            self._dirty.discard(key)
            if rest:
                self.add_after(key, rest)
            else:
                self.add(key)

    def __len__(self) -> int:
        return len(self._waiting) + sum(map(len, self._held.values()))


class RetryPauses:
    """Hold how long to wait before a key is tried again: twice as long after each failure, up to a limit."""

    def __init__(self) -> None:
        self._next: dict[Key, float] = {}

    def longer(self, key: Key, longest: float) -> float:
        """Return the seconds until the next try, after a failure."""
        pause = min(self._next.get(key, FIRST_PAUSE_SECONDS), longest)
        self._next[key] = 2 * pause
        return pause

    def forget(self, key: Key) -> None:
        """Forget the pause after a success."""
        self._next.pop(key, None)
