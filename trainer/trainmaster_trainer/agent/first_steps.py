"""Tell the operator at once when training begins, so that the cost of a restart is measured and not rounded.

Progress pages cannot wake the agent; they are looked at until the last
rank has left its load phase, seldom after a while.
"""

from __future__ import annotations

from typing import Callable, Optional

from trainmaster_trainer.agent.attempt_files import Files
from trainmaster_trainer.agent.reactor import Reactor, Timer

_FIRST_LOOK_SECONDS = 0.02
_LATER_LOOKS_SECONDS = 0.5


class FirstSteps:
    """FirstSteps looks at the newest attempt's progress pages, again and again, until all its ranks train."""

    def __init__(self, reactor: Reactor, files: Files, report: Callable[[], None]) -> None:
        self._reactor = reactor
        self._files = files
        self._report = report
        self._timer: Optional[Timer] = None
        self._pause = _FIRST_LOOK_SECONDS

    def expect(self, ranks: int, attempt: int, start: int) -> None:
        """Look from now on for the first steps of `ranks` ranks of a new attempt, or of another `start` within it."""
        self.forget()
        self._pause = _FIRST_LOOK_SECONDS
        self._again(ranks, attempt, start)

    def forget(self) -> None:
        """Stop looking: the attempt has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _again(self, ranks: int, attempt: int, start: int) -> None:
        self._timer = self._reactor.after(self._pause, lambda: self._look(ranks, attempt, start))
        self._pause = min(1.5 * self._pause, _LATER_LOOKS_SECONDS)

    def _look(self, ranks: int, attempt: int, start: int) -> None:
        pages = self._files.read_pages(attempt, start).values()
        if len(pages) >= ranks and all(page.phase != "load" for page in pages):
            self._report()
        else:
            self._again(ranks, attempt, start)
