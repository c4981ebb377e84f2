"""Show `trainmaster run` on a terminal in a live view, drawn by rich."""

import time
from pathlib import Path
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import JobProgress, TrainingJobStatus
from trainmaster.cli import texts
from trainmaster.cli.shown_lines import FirstWorkerLines
from trainmaster.cli.views import STOPPING
from trainmaster.core.figures import duration
from trainmaster.core.states.actions import PostEvent
from trainmaster.local.local_run import RunOutcome
from trainmaster.wire.printable import printable, printable_in_colour

STYLES = {
    "Running": "green",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Restarting": "yellow",
    "Suspended": "yellow",
    "Stopped": "bold yellow",
}
BAR_WIDTH = 40


class LiveView:
    """Show a bar and a row of figures that stay in place; events and output scroll by above them."""

    def __init__(self, job: TrainingJob, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._began = time.monotonic()
        self._console = Console(highlight=False)
        kind = "line" if self._console.options.ascii_only else "dots"
        self._starting = f"starting {texts.count(job.spec.workers.replicas, 'worker')}"
        self._spinner = Spinner(kind, text=self._starting)
        self._live = Live(self._spinner, console=self._console, refresh_per_second=8, transient=True)
        self._lines = FirstWorkerLines()

    def __enter__(self) -> Self:
        self._console.print(Text(printable(texts.headline(self._job)), style="bold"))
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(None, None, None)

    def event(self, event: PostEvent) -> None:
        """Print the event above the view."""
        text = printable(texts.event_line(event))
        self._console.print(Text(text, style="yellow" if event.type == "Warning" else "dim"))

    def output(self, name: str, chunk: bytes) -> None:
        """Print whole lines of the first worker above the view, in their own colours."""
        self._print(self._lines.take(name, chunk))

    def waiting(self, what: str) -> None:
        """Show beside the spinner what the first attempt waits for; later ones have a row of figures."""
        self._spinner.update(text=Text(f"{self._starting} ({duration(time.monotonic() - self._began)}): {what}"))

    def progress(self, status: TrainingJobStatus, progress: JobProgress) -> None:
        """Redraw the bar and the figures."""
        self._lines.follow(status)
        self._print(self._lines.ripe())
        if status.phase not in ("Pending", "Starting"):
            elapsed = duration(time.monotonic() - self._began)
            total, done = progress.total_steps, progress.step
            bar = ProgressBar(total=total or 100, completed=done, width=BAR_WIDTH, pulse=not (total and done))
            share = f"{100 * done // total}%" if total and done else ""
            row = Table.grid(padding=(0, 2, 0, 0))
            row.add_row(bar, share, elapsed)
            self._live.update(Group(row, _figures(status, progress)))

    def stopping(self) -> None:
        """Print above the view that the run is stopping."""
        self._console.print(Text(STOPPING, style="yellow"))

    def end(self, outcome: RunOutcome, result: dict[str, Any]) -> None:
        """Remove the view and print how the run ended."""
        self._live.stop()
        self._print(self._lines.rest(outcome.cause.known))
        first, *rest = map(printable, texts.closing_lines(outcome, result, self._folder))
        self._console.print(Text(first, style=STYLES.get(first.partition(":")[0], "")))
        for line in rest:
            self._console.print(Text(line), soft_wrap=True)

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(Text.from_ansi(printable_in_colour(line)), soft_wrap=True)


def _figures(status: TrainingJobStatus, progress: JobProgress) -> Table:
    """Return a table with one column per figure. A script does not report its steps and has fewer figures."""
    cells: dict[str, RenderableType] = {"PHASE": Text(status.phase, style=STYLES.get(status.phase, ""))}
    cells["STEP"] = progress.summary if progress.total_steps or progress.step else "-"
    cells["LOSS"] = "-" if progress.loss is None else f"{progress.loss:.4g}"
    cells |= {name.upper(): f"{value:.4g}" for name, value in texts.shown_figures(progress).items()}
    cells["SAMPLES/S"] = "-" if not progress.samples_per_second else f"{progress.samples_per_second:,.0f}"
    cells["ETA"] = progress.eta or "-"
    cells["WORKERS"] = status.replicas.summary if status.replicas else "-"
    if status.restart_count:
        cells["RESTARTS"] = str(status.restart_count)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in cells:
        table.add_column(heading, header_style="dim", no_wrap=True)
    table.add_row(*cells.values())
    return table
