"""What `trainmaster run` shows: plain lines in a pipe, JSON lines for programs. The terminal's view is live.py.

A view is told of events, output and progress while the job runs (it is the session's Audience), and of the end.
cli/run.py chooses one, and does not know which it has.
"""

import json
import time
from pathlib import Path
from typing import Any, Protocol, Self

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import Progress, TrainingJobStatus
from trainmaster.cli import texts
from trainmaster.cli.lines import FirstWorkerLines
from trainmaster.cli.terminal import complain, tell
from trainmaster.core.actions import PostEvent
from trainmaster.local.session import Audience, Outcome
from trainmaster.wire.printable import printable_without_colour

# Plain lines come this often: enough to see life, few enough to read.
PLAIN_SECONDS = 2.0
STOPPING = "Stopping: the ranks save and end. Press Ctrl-C again to end them at once."


class View(Audience, Protocol):
    """One way to show a run."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def stopping(self) -> None:
        """Somebody wants the run to stop, and it takes a moment."""

    def end(self, outcome: Outcome, result: dict[str, Any]) -> None:
        """The last word."""


class JsonView:
    """One JSON object per line; the last one is the job's `.status`."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def event(self, event: PostEvent) -> None:
        """`{"event": {...}}`."""
        self._print({"event": {"type": event.type, "reason": event.reason, "message": event.message}})

    def output(self, name: str, chunk: bytes) -> None:
        """Output stays in the log files: standard output is for programs here."""

    def progress(self, status: TrainingJobStatus, progress: Progress) -> None:
        """`{"progress": {...}}`, whenever it differs from the last one."""
        figures = progress.model_copy(update={"time": None}).model_dump(mode="json", by_alias=True, exclude_none=True)
        plain = {"phase": status.phase, "attempt": status.attempt, **figures}
        if plain != self._last:
            self._last = plain
            self._print({"progress": plain})

    def stopping(self) -> None:
        """To people only."""
        complain(STOPPING)

    def end(self, outcome: Outcome, result: dict[str, Any]) -> None:
        """The result of the evaluation, if any, and then `.status`."""
        if result:
            self._print({"result": result})
        if outcome.faults:
            self._print({"faults": [{"fault": fault, "cost": cost} for fault, cost in outcome.faults]})
        self._print(outcome.status.to_dict())

    def _print(self, plain: dict[str, Any]) -> None:
        tell([json.dumps(plain)])


class PlainView:
    """Lines for logs and pipes."""

    def __init__(self, job: TrainingJob, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._next = 0.0
        self._last = ""
        self._lines = FirstWorkerLines()

    def __enter__(self) -> Self:
        tell([texts.headline(self._job)])
        return self

    def __exit__(self, *error: object) -> None: ...

    def event(self, event: PostEvent) -> None:
        """In one line."""
        tell([texts.event_line(event)])

    def output(self, name: str, chunk: bytes) -> None:
        """What the first worker prints, line by line."""
        self._output(self._lines.of(name, chunk))

    def progress(self, status: TrainingJobStatus, progress: Progress) -> None:
        """At most every PLAIN_SECONDS, and only what is new."""
        self._lines.follow(status)
        self._output(self._lines.ripe())
        text = texts.progress_line(status, progress)
        if time.monotonic() < self._next or text == self._last or not progress.step or status.finished:
            return
        self._next, self._last = time.monotonic() + PLAIN_SECONDS, text
        tell([text])

    def stopping(self) -> None:
        """One line."""
        tell([STOPPING])

    def end(self, outcome: Outcome, result: dict[str, Any]) -> None:
        """How it ended, what came out, and where it is."""
        self._output(self._lines.rest(outcome.cause.known))
        tell(texts.closing_lines(outcome, result, self._folder))

    def _output(self, lines: list[str]) -> None:
        tell(map(printable_without_colour, lines))
