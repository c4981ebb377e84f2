"""Ctrl-C, SIGTERM and a closed terminal, for `trainmaster run`: each at the time when it can be answered.

While things are prepared they raise KeyboardInterrupt; while the job trains they are told to the session; while we
clean up they wait, because a folder or a process that is left behind is worse than half a second. Standard library
only, like all that cli/run.py needs before the warm parent is started.

Often one wish comes as two signals: a terminal that goes sends SIGHUP by its shell and by the kernel, and `timeout`
sends SIGTERM to its child and to the group. Only who asks again after a moment wants all to end at once.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What comes sooner after the first one is the same wish.
_AGAIN_SECONDS = 1.0


class Interrupts:
    """Counts wishes to end, and passes them on as the present part of the run wants."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._clock = clock
        self._first = 0.0
        self._answer: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # nohup, or a shell's background job: not for us then
                self._before[number] = before
                signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Within this, one that comes (or came before) raises KeyboardInterrupt."""
        with self.told(_interrupt):
            yield

    @contextmanager
    def told(self, answer: Callable[[], None]) -> Iterator[None]:
        """Within this, `answer` is called for each, in the main thread; also for those that came before."""
        self._answer = answer
        try:
            for _ in range(self.count):
                answer()
            yield
        finally:
            self._answer = None

    def hung_up(self) -> None:
        """Nobody watches any more: the same as SIGHUP, which may come as well."""
        self._receive(signal.SIGHUP, None)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        now = self._clock()
        if self.count and (number == signal.SIGHUP or now < self._first + _AGAIN_SECONDS):
            return
        self._first = self._first if self.count else now
        self.count += 1
        if self._answer:
            self._answer()


def _interrupt() -> None:
    raise KeyboardInterrupt
