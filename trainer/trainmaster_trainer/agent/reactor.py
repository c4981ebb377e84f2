"""Wait for descriptors, for times, and for calls from other threads. One thread runs all callbacks.

Only standard selectors are used; asyncio would triple the agent's memory.
"""

from __future__ import annotations

import collections
import contextlib
import heapq
import itertools
import os
import selectors
import time
from typing import Callable, Deque, List, Tuple, Union

Callback = Callable[[], None]


class Timer:
    """Timer is a callback at a time, unless it is cancelled before."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the callback: it will not be called."""
        self.cancelled = True


class Reactor:
    """Reactor is where the agent's main thread waits."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: List[Tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._calls: Deque[Callback] = collections.deque()
        self._stopped = False
        reader, self.waker = os.pipe()
        for descriptor in (reader, self.waker):
            os.set_blocking(descriptor, False)
        self._reader = reader
        self._selector.register(reader, selectors.EVENT_READ, self._drain)

    def watch(self, descriptor: int, callback: Callback) -> None:
        """Call `callback` whenever `descriptor` is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def unwatch(self, descriptor: int) -> None:
        """Stop `watch`. Call it before the descriptor is closed."""
        self._selector.unregister(descriptor)

    def after(self, seconds: float, callback: Callback) -> Timer:
        """Call `callback` once, after `seconds`."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), timer))
        return timer

    def call(self, callback: Callback) -> None:
        """Have the reactor's thread call `callback`. Any thread may ask for it."""
        self._calls.append(callback)
        with contextlib.suppress(BlockingIOError):  # full: it wakes up anyway
            os.write(self.waker, b"\0")

    def run(self) -> None:
        """Wait and call until `stop`."""
        while not self._stopped:
            seconds = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, _ in self._selector.select(seconds):
                callback: Union[Callback, None] = key.data
                if callback is not None and key.fd in self._selector.get_map():
                    callback()
            while self._timers and self._timers[0][0] <= time.monotonic():
                _, _, timer = heapq.heappop(self._timers)
                if not timer.cancelled:
                    timer.callback()

    def stop(self) -> None:
        """Have `run` return after the current callback's round."""
        self._stopped = True

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reader, 4096):
                pass
        while self._calls:
            self._calls.popleft()()
