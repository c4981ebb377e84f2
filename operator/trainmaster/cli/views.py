"""Show `trainmaster run` without a terminal: plain lines in a pipe, JSON lines for programs.

live.py has the terminal's view.

A view is told of events, output and progress while the job runs (it is the session's Audience), and of the end.
"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any, Protocol, Self

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.api.status import JobProgress, TrainingJobStatus
from trainmaster.cli import texts
from trainmaster.cli.shown_lines import FirstWorkerLines
from trainmaster.cli.terminal import complain, tell
from trainmaster.core.states.actions import PostEvent
from trainmaster.local.local_run import Audience, RunOutcome
from trainmaster.wire.printable import printable_without_colour

# Seconds between two plain lines of progress.
PLAIN_SECONDS = 2.0
# Seconds before the first plain line on what a start waits for, and between two of them: most starts are over by then.
WAITING_SECONDS = 5.0
STOPPING = "Stopping: the ranks save and end. Press Ctrl-C again to end them at once."


class View(Audience, Protocol):
    """A view is one way to show a run."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def stopping(self) -> None:
        """Show that the run was asked to stop, which takes a moment."""

    def end(self, outcome: RunOutcome, result: dict[str, Any]) -> None:
        """Show how the run ended."""


class JsonView:
    """Print one JSON object per line; the last one is the job's `.status`."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def event(self, event: PostEvent) -> None:
        """Print `{"event": {...}}`."""
        self._print({"event": {"type": event.type, "reason": event.reason, "message": event.message}})

    def output(self, name: str, chunk: bytes) -> None:
        """Do nothing: output stays in the log files, because standard output is for programs here."""

    def waiting(self, what: str) -> None:
        """Do nothing: a program sees the phase in the progress."""

    def progress(self, status: TrainingJobStatus, progress: JobProgress) -> None:
        """Print `{"progress": {...}}` whenever it differs from the last one."""
        figures = dataclasses.replace(progress, time=None).to_dict()
        plain = {"phase": status.phase, "attempt": status.attempt, **figures}
        if plain != self._last:
            self._last = plain
            self._print({"progress": plain})

    def stopping(self) -> None:
        """Print to standard error, for people only."""
        complain(STOPPING)

    def end(self, outcome: RunOutcome, result: dict[str, Any]) -> None:
        """Print the result of the evaluation and the faults, if any, and then `.status`."""
        if result:
            self._print({"result": result})
        if outcome.faults:
            self._print({"faults": [{"fault": fault, "cost": cost} for fault, cost in outcome.faults]})
        self._print(outcome.status.to_dict())

    def _print(self, plain: dict[str, Any]) -> None:
        tell([json.dumps(plain)])


class PlainView:
    """Print lines for logs and pipes."""

    def __init__(self, job: TrainingJob, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._next = 0.0
        self._waiting = time.monotonic() + WAITING_SECONDS
        self._last = ""
        self._lines = FirstWorkerLines()

    def __enter__(self) -> Self:
        tell([texts.headline(self._job)])
        return self

    def __exit__(self, *error: object) -> None: ...

    def event(self, event: PostEvent) -> None:
        """Print the event in one line."""
        tell([texts.event_line(event)])

    def output(self, name: str, chunk: bytes) -> None:
        """Print the first worker's output, line by line."""
        self._output(self._lines.take(name, chunk))

    def waiting(self, what: str) -> None:
        """Print what the start waits for if that has changed, at most every WAITING_SECONDS."""
        if time.monotonic() >= self._waiting and what != self._last:
            self._waiting, self._last = time.monotonic() + WAITING_SECONDS, what
            tell([f"starting: {what}"])

    def progress(self, status: TrainingJobStatus, progress: JobProgress) -> None:
        """Print the progress if it has changed, at most every PLAIN_SECONDS."""
        self._lines.follow(status)
        self._output(self._lines.ripe())
        text = texts.progress_line(status, progress)
        if status.phase == Phase.RUNNING:
            self._waiting = time.monotonic() + WAITING_SECONDS
        if time.monotonic() < self._next or text == self._last or not progress.step or status.finished:
            return
        self._next, self._last = time.monotonic() + PLAIN_SECONDS, text
        tell([text])

    def stopping(self) -> None:
        """Print that the run is stopping."""
        tell([STOPPING])

    def end(self, outcome: RunOutcome, result: dict[str, Any]) -> None:
        """Print how the run ended, its results, and its folder."""
        self._output(self._lines.rest(outcome.cause.known))
        tell(texts.closing_lines(outcome, result, self._folder))

    def _output(self, lines: list[str]) -> None:
        tell(map(printable_without_colour, lines))
