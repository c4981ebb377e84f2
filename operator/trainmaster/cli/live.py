"""The live view of `trainmaster run` on a terminal, drawn by rich. Chosen by cli/run.py where there is a terminal."""

from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import Progress, TrainingJobStatus
from trainmaster.cli.views import FirstWorkerLines, closing_lines, headline
from trainmaster.core.actions import PostEvent

STYLES = {"Running": "green", "Succeeded": "bold green", "Failed": "bold red", "Restarting": "yellow"}


class LiveView:
    """A bar and a row of figures that stay in place; events and output scroll above them."""

    def __init__(self, job: TrainingJob, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._console = Console(highlight=False)
        self._live = Live(Text("starting ..."), console=self._console, refresh_per_second=8, transient=True)
        self._lines = FirstWorkerLines()

    def __enter__(self) -> "LiveView":
        self._console.print(Text(headline(self._job), style="bold"))
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(None, None, None)

    def event(self, event: PostEvent) -> None:
        """Above the view."""
        style = "yellow" if event.type == "Warning" else "dim"
        self._console.print(Text(f"{event.reason}: {event.message}", style=style))

    def output(self, name: str, chunk: bytes) -> None:
        """Whole lines of the first worker, above the view."""
        for line in self._lines.of(name, chunk):
            self._console.print(Text(line))

    def progress(self, status: TrainingJobStatus, progress: Progress) -> None:
        """Redraw."""
        self._live.update(Group(_bar(progress), _figures(status, progress)))

    def end(self, status: TrainingJobStatus, result: dict[str, Any]) -> None:
        """Take the view away and say how it ended."""
        self._live.stop()
        first, *rest = closing_lines(status, result, self._folder)
        self._console.print(Text(first, style=STYLES.get(status.phase, "")))
        for line in rest:
            self._console.print(Text(line))


def _bar(progress: Progress) -> ProgressBar:
    return ProgressBar(total=progress.total_steps or 100, completed=progress.step, width=60, pulse=not progress.step)


def _figures(status: TrainingJobStatus, progress: Progress) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    workers = status.replicas.summary if status.replicas else "-"
    cells = {
        "PHASE": Text(status.phase, style=STYLES.get(status.phase, "")),
        "STEP": progress.summary,
        "LOSS": "-" if progress.loss is None else f"{progress.loss:.4g}",
        "SAMPLES/S": "-" if not progress.samples_per_second else f"{progress.samples_per_second:,.0f}",
        "ETA": progress.eta or "-",
        "WORKERS": workers,
        "RESTARTS": str(status.restart_count),
    }
    for heading in cells:
        table.add_column(heading, style="default", header_style="dim")
    table.add_row(*cells.values())
    return table
