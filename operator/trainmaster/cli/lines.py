"""Of all that the processes of a run print, what the terminal shows: whole lines of the first worker.

A rank's last words are held back: what killed it is told by the restart ledger, once, and not by each of its peers.
Everything, of all workers, stands in the log files. Used by the views.
"""

import re
import time
from collections.abc import Callable

from trainmaster.api.status import TrainingJobStatus
from trainmaster.local.causes import AGENT_PREFIX
from trainmaster.wire import names

# What comes this long after the first line of a traceback shows that its process goes on.
HOLD_SECONDS = 1.0
# With or without the `[worker/0 rank 1] ` of an agent with several ranks, and the `[rank1]: ` of torch.
_LAST_WORDS = re.compile(r"(\[[\w/ ]+\]:? )*(Traceback \(most recent call last\):|trainmaster: )")
_LONGEST_LINE = 1 << 16


class FirstWorkerLines:
    """Chunks in, lines out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rest = b""
        self._held: list[str] = []
        self._held_since = 0.0
        self._last_words: list[str] = []
        self._first = names.replica_key(names.WORKER, 0)

    def follow(self, status: TrainingJobStatus) -> None:
        """A spare may have taken the first worker's place."""
        first = names.replica_key(names.WORKER, status.substitutes.get(names.replica_key(names.WORKER, 0), 0))
        if first != self._first:
            self._first, self._rest = first, b""

    def of(self, name: str, chunk: bytes) -> list[str]:
        """The lines that can be shown, now that the agent `name` passed on `chunk`."""
        if not name.rsplit("-", 1)[0].endswith(f"-{self._first}"):
            return []
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = _without_overwritten(rest)[-_LONGEST_LINE:]
        shown: list[str] = []
        for line in lines:
            shown += self._next(_without_overwritten(line.removesuffix(b"\r")).decode(errors="replace"))
        return shown

    def ripe(self) -> list[str]:
        """Lines that were held back for nothing."""
        if not self._held or self._clock() < self._held_since + HOLD_SECONDS:
            return []
        shown, self._held = self._held, []
        return shown

    def rest(self, cause_known: bool) -> list[str]:
        """At the end of all: what was held back, unless the cause is known otherwise."""
        return [] if cause_known else self._last_words + self._held

    def _next(self, line: str) -> list[str]:
        if line.startswith(AGENT_PREFIX):  # it says so when ranks have ended, and when it begins anew
            self._last_words, self._held = self._held or self._last_words, []
            return []
        shown = self.ripe()
        if self._held or _LAST_WORDS.match(line):
            self._held_since = self._held_since if self._held else self._clock()
            self._held.append(line)
            return shown
        return [*shown, line]


def _without_overwritten(line: bytes) -> bytes:
    """Progress bars write over themselves: only the last version counts."""
    return line.rpartition(b"\r")[2]
