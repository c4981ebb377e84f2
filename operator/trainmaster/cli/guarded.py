"""Guard a view whose reader may go away: the pipe into `head`, a terminal that is closed.

If the reader goes away, the session is asked to stop, as by Ctrl-C. If the reader stays, but output cannot be written
(a full disk, a pipe that is not read: process_output.py waits for it), lines are lost and training goes on.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Any, Self

from trainmaster.api.problem import reason
from trainmaster.api.status import JobProgress, TrainingJobStatus
from trainmaster.cli.interrupts import Interrupts
from trainmaster.cli.process_output import ProcessOutput
from trainmaster.cli.terminal import complain
from trainmaster.cli.views import View
from trainmaster.core.states.actions import PostEvent
from trainmaster.local.local_run import RunOutcome

_GONE = (errno.EPIPE, errno.ECONNRESET, errno.EIO, errno.EBADF)


class GuardedView:
    """Pass everything on to a view until its reader has gone."""

    def __init__(self, view: View, stdout: ProcessOutput, interrupts: Interrupts) -> None:
        self._view = view
        self._stdout = stdout
        self._interrupts = interrupts
        self._broken = ""  # why the reader has gone
        self._missing = "nobody read them"  # why lines could not be written
        self._when_broken: Callable[[], None] = lambda: None

    def when_broken(self, call: Callable[[], None]) -> None:
        """Set what to call, once, when the reader has gone."""
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

    def waiting(self, what: str) -> None:
        """See View."""
        with self._guarded():
            self._view.waiting(what)

    def progress(self, status: TrainingJobStatus, progress: JobProgress) -> None:
        """See View."""
        with self._guarded():
            self._view.progress(status, progress)

    def stopping(self) -> None:
        """See View."""
        with self._guarded():
            self._view.stopping()

    def end(self, outcome: RunOutcome, result: dict[str, Any]) -> None:
        """See View."""
        with self._guarded():
            self._view.end(outcome, result)
        with self._guarded():
            # A slow reader takes all lines, unless a signal comes.
            try:
                with self._interrupts.raised():
                    self._stdout.drain(None)
            except KeyboardInterrupt:
                self._stdout.drain()
        if self._stdout.lost_lines and not self._broken:
            _tell(f"Lines of the output are missing ({self._stdout.lost_lines}): {self._missing}.")
        if self._broken:
            _tell(f"Nobody reads the output ({self._broken}){'; the run was stopped' if outcome.stopped else ''}.")
            raise BrokenPipeError  # main.py handles it

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
