"""How many requests may be under way: no fixed rate, but what the API server bears.

Additive increase, multiplicative decrease, as TCP does it (Chiu and Jain, "Analysis of the Increase and Decrease
Algorithms for Congestion Avoidance", 1989). Used by `client` for everything but watches.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from trainmaster.queueing import WORKED_ON, Key, RoundRobin

FIRST_WINDOW = 32.0
LEAST_WINDOW = 1.0
LARGEST_WINDOW = 256.0
# After one decrease, the other answers of the same burst say nothing new.
DECREASE_SECONDS = 1.0
_NO_JOB = Key("", "")


class Throttle:
    """For one event loop. Jobs and namespaces take turns; what is for no job has a turn as another namespace has."""

    def __init__(self) -> None:
        self.window = FIRST_WINDOW
        self._under_way = 0
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()
        self._decreased = 0.0
        self._resume = 0.0

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for room, and for the end of a pause that the server asked for."""
        await self._enter()
        try:
            await self._pause()
            yield
        finally:
            self._under_way -= 1
            self._let_in()

    def went_well(self) -> None:
        """One request more per window of requests that went well."""
        self.window = min(LARGEST_WINDOW, self.window + 1 / self.window)

    def too_many(self, pause_seconds: float) -> None:
        """The server said 429: half as many from now on, and none for a while."""
        now = time.monotonic()
        self._resume = max(self._resume, now + pause_seconds)
        if now - self._decreased > DECREASE_SECONDS:
            self._decreased = now
            self.window = max(LEAST_WINDOW, self.window / 2)

    async def _enter(self) -> None:
        if self._waiting or self._room() < 1:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.add(WORKED_ON.get() or _NO_JOB, turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # let in and cancelled at once: the place is somebody else's
                    self._under_way -= 1
                    self._let_in()
                raise
        else:
            self._under_way += 1

    def _let_in(self) -> None:
        while self._waiting and self._room() >= 1:
            turn = self._waiting.pop()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)

    def _room(self) -> int:
        return int(self.window) - self._under_way

    async def _pause(self) -> None:
        left = self._resume - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
            await self._pause()  # somebody else may have been told to wait longer
