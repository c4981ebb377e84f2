"""A view whose reader may go away: the pipe into `head`, a terminal that is closed.

Made by cli/run.py around every view. The session must not be harmed by it: it is asked to stop, as Ctrl-C would.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Self

from trainmaster.api.status import Progress, TrainingJobStatus
from trainmaster.cli.views import View
from trainmaster.core.actions import PostEvent
from trainmaster.local.session import Outcome


class GuardedView:
    """Passes everything on, until nobody listens."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._broken = False
        self._when_broken: Callable[[], None] = lambda: None

    def when_broken(self, call: Callable[[], None]) -> None:
        """What to do, once, when the reader has gone."""
        self._when_broken = call

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        with self._guarded():
            self._view.__exit__(*error)

    def event(self, event: PostEvent) -> None:
        """See View."""
        with self._guarded():
            self._view.event(event)

    def output(self, name: str, chunk: bytes) -> None:
        """See View."""
        with self._guarded():
            self._view.output(name, chunk)

    def progress(self, status: TrainingJobStatus, progress: Progress) -> None:
        """See View."""
        with self._guarded():
            self._view.progress(status, progress)

    def stopping(self) -> None:
        """See View."""
        with self._guarded():
            self._view.stopping()

    def end(self, outcome: Outcome, result: dict[str, Any]) -> None:
        """See View."""
        with self._guarded():
            self._view.end(outcome, result)
        if self._broken:
            raise BrokenPipeError  # main.py knows what to do

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if not self._broken:
                self._broken = True
                self._when_broken()
