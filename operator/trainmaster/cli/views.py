"""What `trainmaster run` shows: a live view on a terminal, plain lines elsewhere, JSON lines for programs.

A view is told of events, output and progress while the job runs, and of the end. Everything goes through one small
interface, so that cli/run.py does not know which view it has.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import Progress, TrainingJobStatus
from trainmaster.core.actions import PostEvent

# Plain lines come this often: enough to see life, few enough to read.
PLAIN_SECONDS = 2.0
AGENT_PREFIX = "trainmaster agent:"


class View(Protocol):
    """One way to show a run."""

    def __enter__(self) -> "View": ...
    def __exit__(self, *error: object) -> None: ...

    def event(self, event: PostEvent) -> None:
        """Something happened that people should know."""

    def output(self, name: str, chunk: bytes) -> None:
        """An agent, or a rank of it, printed something."""

    def progress(self, status: TrainingJobStatus, progress: Progress) -> None:
        """How far it is; called several times a second."""

    def end(self, status: TrainingJobStatus, result: dict[str, Any]) -> None:
        """The last word."""


class JsonView:
    """One JSON object per line; the last one is the job's `.status`."""

    def __enter__(self) -> "JsonView":
        self._last = ""
        return self

    def __exit__(self, *error: object) -> None: ...

    def event(self, event: PostEvent) -> None:
        """`{"event": {...}}`."""
        self._print({"event": {"type": event.type, "reason": event.reason, "message": event.message}})

    def output(self, name: str, chunk: bytes) -> None:
        """Output stays in the log files: standard output is for programs here."""

    def progress(self, status: TrainingJobStatus, progress: Progress) -> None:
        """`{"progress": {...}}`, with every status that was written."""
        plain = {"phase": status.phase, **progress.model_copy(update={"time": None}).model_dump(by_alias=True, exclude_none=True)}
        line = json.dumps(plain, default=str)
        if line != self._last:
            self._last = line
            self._print({"progress": plain})

    def end(self, status: TrainingJobStatus, result: dict[str, Any]) -> None:
        """The result of the evaluation, if any, and then `.status`."""
        if result:
            self._print({"result": result})
        self._print(status.to_dict())

    def _print(self, plain: dict[str, Any]) -> None:
        print(json.dumps(plain, default=str), flush=True)


class PlainView:
    """Lines for logs and pipes."""

    def __init__(self, job: TrainingJob, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._next = 0.0
        self._last = ""
        self._lines = FirstWorkerLines()

    def __enter__(self) -> "PlainView":
        self.line(headline(self._job))
        return self

    def __exit__(self, *error: object) -> None: ...

    def line(self, text: str) -> None:
        """Print one line."""
        print(text, flush=True)

    def event(self, event: PostEvent) -> None:
        """A warning stands out."""
        self.line(f"{'! ' if event.type == 'Warning' else ''}{event.reason}: {event.message}")

    def output(self, name: str, chunk: bytes) -> None:
        """What the first worker prints, line by line."""
        for line in self._lines.of(name, chunk):
            self.line(line)

    def progress(self, status: TrainingJobStatus, progress: Progress) -> None:
        """At most every PLAIN_SECONDS, and only what is new."""
        text = progress_line(status, progress)
        if time.monotonic() < self._next or text == self._last or not progress.step:
            return
        self._next, self._last = time.monotonic() + PLAIN_SECONDS, text
        self.line(text)

    def end(self, status: TrainingJobStatus, result: dict[str, Any]) -> None:
        """How it ended, what came out, and where it is."""
        for text in closing_lines(status, result, self._folder):
            self.line(text)


class FirstWorkerLines:
    """Chunks in, whole lines out; only what the first worker's ranks print, without the agent's own words.

    All of it, of all workers, stands in the log files.
    """

    def __init__(self) -> None:
        self._rest = b""

    def of(self, name: str, chunk: bytes) -> list[str]:
        """The lines that `chunk` completes."""
        if not name.rsplit("-", 1)[0].endswith("-worker-0"):
            return []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        texts = [line.decode(errors="replace") for line in lines]
        return [text for text in texts if not text.startswith(AGENT_PREFIX)]


def headline(job: TrainingJob) -> str:
    """What is going to happen."""
    training, workers = job.spec.training, job.spec.workers
    what = training.task or " ".join(training.command or ())
    devices = f" x {workers.gpus} devices" if workers.gpus > 1 else ""
    replicas = f"{workers.replicas} worker{'s' if workers.replicas > 1 else ''}{devices}"
    return f"{job.name}: {what} by {job.spec.strategy.type} on {replicas}"


def progress_line(status: TrainingJobStatus, progress: Progress) -> str:
    """Phase, step, loss, speed and what is left, in one line."""
    parts = [status.phase.lower(), f"step {progress.summary}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.samples_per_second:
        parts.append(f"{progress.samples_per_second:,.0f} samples/s")
    if progress.eta:
        parts.append(f"ETA {progress.eta}")
    if status.restart_count:
        parts.append(f"restarts {status.restart_count}")
    return "  ".join(parts)


def closing_lines(status: TrainingJobStatus, result: dict[str, Any], folder: Path) -> list[str]:
    """The end, for people."""
    lines = [f"{status.phase}: {status.message or ''}"]
    if status.progress and status.progress.step:
        loss = f", loss {status.progress.loss:.4g}" if status.progress.loss is not None else ""
        lines.append(f"  trained     {status.progress.summary} steps{loss}, {status.restart_count} restarts")
    metrics = result.get("metrics", {}) if status.phase == "Succeeded" else {}
    lines += [f"  {name:<11} {value:.4f}" for name, value in metrics.items() if isinstance(value, (int, float))]
    if status.checkpoint:
        lines.append(f"  checkpoint  step {status.checkpoint.step}, model sha256 {status.checkpoint.sha256[:16]}...")
    lines.append(f"  folder      {folder}")
    return lines
