"""Limit how many requests are under way at once, to what the API server can take.

The limit follows additive increase, multiplicative decrease, as in TCP (Chiu and Jain, "Analysis of the Increase and
Decrease Algorithms for Congestion Avoidance", 1989). It does not grow either while answers take long, as in TCP Vegas:
then more requests at once only wait in the API server, before those of other jobs. Watches are not limited.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from trainmaster.queueing import WORKED_ON, Key, RoundRobin

FIRST_WINDOW = 32.0
LEAST_WINDOW = 1.0
LARGEST_WINDOW = 256.0
# While answers take longer, the limit goes back to FIRST_WINDOW. A small job's pod takes two or three answers.
LONG_SECONDS = 0.5
# After one decrease, other answers of the same burst must not decrease the limit again.
DECREASE_SECONDS = 1.0
_NO_JOB = Key("", "")


class Throttle:
    """Limit the requests of one event loop.

    Jobs and namespaces take turns; requests for no job take turns like a namespace.
    """

    def __init__(self) -> None:
        self.window = FIRST_WINDOW
        self._under_way = 0
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()
        self._decreased = 0.0
        self._resume = 0.0

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait until a request may be sent, and until a pause that the server asked for is over."""
        await self._enter()
        try:
            await self._pause()
            yield
        finally:
            self._under_way -= 1
            self._let_in()

    def went_well(self, seconds: float = 0.0) -> None:
        """Raise the limit by one request after as many successes as the limit is; lower it where they took long."""
        if seconds <= LONG_SECONDS:
            self.window = min(LARGEST_WINDOW, self.window + 1 / self.window)
        elif self.window > FIRST_WINDOW:
            self.window = max(FIRST_WINDOW, self.window - 1 / self.window)

    def too_many(self, pause_seconds: float) -> None:
        """Halve the limit and pause all requests for these seconds: the server answered 429."""
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
                if turn.done() and not turn.cancelled():  # it got its place and was cancelled: give the place back
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
            await self._pause()  # another answer may have asked for a longer pause
