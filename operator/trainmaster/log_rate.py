"""Bound a log that strangers can cause: it has so many lines a minute, and counts the others."""

import logging
import time
from collections.abc import Callable

BURST = 10
SECONDS = 6.0  # until there may be one line more


class LogRate:
    """Allow ten lines at once, and then one every six seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._room = float(BURST)
        self._looked = clock()
        self._left_out = 0

    def left_out(self) -> int | None:
        """Return how many lines were left out before the one that may come now; None: this one is left out, too."""
        now = self._clock()
        self._room = min(BURST, self._room + (now - self._looked) / SECONDS)
        self._looked = now
        if self._room < 1:
            self._left_out += 1
            return None
        self._room -= 1
        before, self._left_out = self._left_out, 0
        return before


class LogRateFilter(logging.Filter):
    """Bound the lines of a logger that is not ours; what it logs on errors of the program is left out as well."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom = LogRate()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record may be logged; its text then says how many before it were not."""
        before = self._seldom.left_out()
        if before:
            record.msg = f"{record.msg} (before this one, {before} others were not logged)"
        return before is not None
