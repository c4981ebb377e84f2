"""An event loop in virtual time: it never sleeps, it leaps. Minutes of a simulated cluster pass in milliseconds.

Everything that waits does so through asyncio, so one seed gives one order of events. Used by the simulated platform
and by tests of whatever waits.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class StuckError(AssertionError):
    """Nothing is left that could ever happen, and the test still waits."""


class _Leaper(selectors.SelectSelector):
    """Nothing outside is ever ready; where nothing inside is, the clock leaps to the next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As asyncio asks before every round."""
        if timeout is None:
            raise StuckError("everybody waits for somebody else")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, with another clock."""

    def __init__(self) -> None:
        self._leaper = _Leaper()
        super().__init__(self._leaper)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._leaper.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time. Whatever is still running then is cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def now() -> datetime:
    """The virtual time as the core wants it."""
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())
