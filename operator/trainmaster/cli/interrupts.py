"""Handle Ctrl-C, SIGTERM and a closed terminal for `trainmaster run`.

During preparation they raise KeyboardInterrupt; while the job trains they are passed to the session; during cleanup
they wait, because a folder or a process that is left behind is worse than half a second. Standard library only, like
all that cli/run.py needs before the warm parent starts.

One wish often comes as two signals: a terminal that closes sends SIGHUP by its shell and by the kernel, and `timeout`
sends SIGTERM to its child and to the group. So a second signal counts only after a moment.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A signal that comes sooner after the first one is part of the same wish.
_AGAIN_SECONDS = 1.0


class Interrupts:
    """Count the wishes to end, and answer each as the present part of the run needs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._clock = clock
        self._first = 0.0
        self._answer: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # under nohup or in a shell's background job it stays ignored
                self._before[number] = before
                signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._receive:  # else see `ignore`
                signal.signal(number, before)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise KeyboardInterrupt, within this `with`, for a wish that comes or came before."""
        with self.answering(_interrupt):
            yield

    @contextmanager
    def answering(self, answer: Callable[[], None]) -> Iterator[None]:
        """Call `answer`, within this `with`, for each wish, in the main thread, also for wishes that came before."""
        self._answer = answer
        try:
            for _ in range(self.count):
                answer()
            yield
        finally:
            self._answer = None

    def hung_up(self) -> None:
        """Count a wish because the reader of the output has gone, as for a SIGHUP, which may come as well."""
        self._receive(signal.SIGHUP, None)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        now = self._clock()
        if self.count and (number == signal.SIGHUP or now < self._first + _AGAIN_SECONDS):
            return
        self._first = self._first if self.count else now
        self.count += 1
        if self._answer:
            self._answer()


def ignore() -> None:
    """Ignore all of them to the end of this process, whose work is done: none may change its exit code any more."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt() -> None:
    raise KeyboardInterrupt
