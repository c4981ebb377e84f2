"""Read what plot, compare and report look at: a run on this machine, or a job on a cluster, by the same words.

Of a run that is its job, its status and metrics.jsonl; of a job on a cluster its document alone, so that what is shown
needs no pod.
"""

import argparse
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli import curves
from trainmaster.cli.targets import LocalRun, find_local, not_here, phase_of
from trainmaster.wire.metric_lines import METRICS

Document = dict[str, Any]


class NotReadableError(Exception):
    """There is no such run or job, or it cannot be read. `code` is the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Subject:
    """One training that is looked at."""

    name: str
    document: Document
    curves: curves.Curves

    @cached_property
    def status(self) -> TrainingJobStatus:
        """Return its status."""
        return TrainingJobStatus.read(self.document.get("status"))

    @property
    def phase(self) -> str:
        """Return the phase, as the list shows it."""
        return phase_of(self.document)

    @property
    def spec(self) -> Document:
        """Return its spec; empty where it is not known."""
        spec = self.document.get("spec")
        return spec if isinstance(spec, dict) else {}


def read_all(options: argparse.Namespace) -> list[Subject]:
    """Return what the command line names, each once.

    Raises:
        NotReadableError: one of them is not there.
    """
    return [read(name, options) for name in dict.fromkeys(options.names)]


def read(name: str, options: argparse.Namespace) -> Subject:
    """Return a run or a job as it is now.

    Raises:
        NotReadableError: it is not there.
    """
    local = find_local(name, options)
    if local:
        document = local.document()
        return Subject(name, document, _of_run(local, document))
    document = _of_cluster(name, options)
    return Subject(name, document, curves.of_status(TrainingJobStatus.read(document.get("status"))))


def _of_run(run: LocalRun, document: Document) -> curves.Curves:
    kept = document.get("spec")
    for part in ("checkpoint", "storage", "path"):
        kept = kept.get(part) if isinstance(kept, dict) else None
    for folder in [run.folder / "checkpoints", run.folder, *([Path(kept)] if isinstance(kept, str) else [])]:
        try:
            found = curves.of_file(folder / METRICS)
        except OSError:
            continue
        if found.by_name or found.torn:
            return found
    return curves.of_status(TrainingJobStatus.read(document.get("status")))


def _of_cluster(name: str, options: argparse.Namespace) -> Document:
    try:
        from trainmaster.cluster.access import Access, AccessError  # noqa: PLC0415 (runs here do not need it)
    except ImportError:
        raise NotReadableError(
            f"there is no run {name} here, and jobs on a cluster need the Kubernetes client: pip install "
            "'trainmaster[operator]'",
            2,
        ) from None
    try:
        return Access(options.context, options.namespace).job(name)
    except AccessError as error:
        raise NotReadableError(f"{not_here(name, options)}{error}", 3) from None
