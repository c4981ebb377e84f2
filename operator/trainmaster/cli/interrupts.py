"""Ctrl-C, SIGTERM and a closed terminal, for `trainmaster run`: each at the time when it can be answered.

While things are prepared they raise KeyboardInterrupt; while the job trains they are told to the session; while we
clean up they wait, because a folder or a process that is left behind is worse than half a second. Standard library
only, like all that cli/run.py needs before the warm parent is started.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts them, and passes them on as the present part of the run wants."""

    def __init__(self) -> None:
        self.count = 0
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

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._answer:
            self._answer()


def _interrupt() -> None:
    raise KeyboardInterrupt
