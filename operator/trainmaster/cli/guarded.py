"""A view whose reader may go away: the pipe into `head`, a terminal that is closed.

Made by cli/run.py around every view. The session must not be harmed by it: it is asked to stop, as Ctrl-C would.
A reader that is still there may be unable to take more: a log on a full disk, a pipe that nobody empties
(process_output.py waits for it). That costs lines, and no training.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Any, Self

from trainmaster.api.problem import reason
from trainmaster.api.status import Progress, TrainingJobStatus
from trainmaster.cli.interrupts import Interrupts
from trainmaster.cli.process_output import ProcessOutput
from trainmaster.cli.terminal import complain
from trainmaster.cli.views import View
from trainmaster.core.actions import PostEvent
from trainmaster.local.session import Outcome

_GONE = (errno.EPIPE, errno.ECONNRESET, errno.EIO, errno.EBADF)


class GuardedView:
    """Passes everything on, until nobody listens."""

    def __init__(self, view: View, stdout: ProcessOutput, interrupts: Interrupts) -> None:
        self._view = view
        self._stdout = stdout
        self._interrupts = interrupts
        self._broken = ""  # why nobody can read any more
        self._missing = "nobody read them"  # why lines could not be written
        self._when_broken: Callable[[], None] = lambda: None

    def when_broken(self, call: Callable[[], None]) -> None:
        """What to do, once, when the reader has gone."""
        self._when_broken = call
        if self._broken:
            call()

    def __enter__(self) -> Self:
        with self._guarded():
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
        with self._guarded():
            self._wait_for_reader()
        if self._stdout.lost_lines and not self._broken:
            _tell(f"Lines of the output are missing ({self._stdout.lost_lines}): {self._missing}.")
        if self._broken:
            _tell(f"Nobody reads the output ({self._broken}){'; the run was stopped' if outcome.stopped else ''}.")
            raise BrokenPipeError  # main.py knows what to do

    def _wait_for_reader(self) -> None:
        """A slow one gets every line, as from any program; one that does not read has us wait for a signal."""
        try:
            with self._interrupts.raised():
                self._stdout.drain(None)
        except KeyboardInterrupt:
            self._stdout.drain()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _GONE:
                self._missing = reason(error)
            elif not self._broken:
                self._broken = reason(error)
                self._when_broken()


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):
        complain(line)
