"""Choose which lines of a run's processes the terminal shows: whole lines of the first worker.

A traceback at the end of a rank is held back: the restart ledger tells once what killed it. The log files have all
lines of all workers.
"""

import re
import time
from collections.abc import Callable

from trainmaster.api.status import TrainingJobStatus
from trainmaster.local.failure_report import AGENT_PREFIX
from trainmaster.wire import names

# A process that goes on for so long after the first line of a traceback is not ended by it. A busy machine takes
# seconds to end one whose traceback was its last word.
HOLD_SECONDS = 5.0
# Prefixes may stand before it: `[worker/0 rank 1] ` of an agent with several ranks, `[rank1]: ` of torch.
_LAST_WORDS = re.compile(r"(\[[\w/ ]+\]:? )*(Traceback \(most recent call last\):|trainmaster: )")
_LONGEST_LINE = 1 << 16


class FirstWorkerLines:
    """Make whole lines of the chunks that the first worker's agent passes on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rest = b""
        self._held: list[str] = []
        self._held_since = 0.0
        self._last_words: list[str] = []
        self._first = names.replica_key(names.WORKER, 0)

    def follow(self, status: TrainingJobStatus) -> None:
        """Follow the spare, if one has taken the first worker's place."""
        first = names.replica_key(names.WORKER, status.substitutes.get(names.replica_key(names.WORKER, 0), 0))
        if first != self._first:
            self._first, self._rest = first, b""

    def take(self, name: str, chunk: bytes) -> list[str]:
        """Return the lines that can be shown now that the agent `name` has passed on `chunk`."""
        if not name.rsplit("-", 1)[0].endswith(f"-{self._first}"):
            return []
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = _without_overwritten(rest)[-_LONGEST_LINE:]
        shown: list[str] = []
        for line in lines:
            shown += self._next(_without_overwritten(line.removesuffix(b"\r")).decode(errors="replace"))
        return shown

    def ripe(self) -> list[str]:
        """Return lines that were held back, when their process has gone on for HOLD_SECONDS after them."""
        if not self._held or self._clock() < self._held_since + HOLD_SECONDS:
            return []
        shown, self._held = self._held, []
        return shown

    def rest(self, cause_known: bool) -> list[str]:
        """Return, at the end of the run, the lines that were held back; none if the cause is known otherwise."""
        return [] if cause_known else self._last_words + self._held

    def _next(self, line: str) -> list[str]:
        if line.startswith(AGENT_PREFIX):  # the agent prints one when ranks have ended and when they start again
            self._last_words, self._held = self._held or self._last_words, []
            return []
        shown = self.ripe()
        if self._held or _LAST_WORDS.match(line):
            self._held_since = self._held_since if self._held else self._clock()
            self._held.append(line)
            return shown
        return [*shown, line]


def _without_overwritten(line: bytes) -> bytes:
    """Return what stays visible of a line: progress bars write over themselves, and the last version counts."""
    return line.rpartition(b"\r")[2]
