"""Run `trainmaster explain WHAT`: say what a job that has not run will do, or tell what happened to one that has.

A job file without a status is explained by explain_job.py. Otherwise WHAT is the folder of a local run, or a file or
`-` with `.status`, a TrainingJob (`kubectl get tj NAME -o json`), or the output of `trainmaster run --output json`.
READERS has one line per kind of document.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from trainmaster.api import yaml_text
from trainmaster.api.problem import reason
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli.check import EXIT_BAD, EXIT_GOOD
from trainmaster.cli.explain_job import explain_job
from trainmaster.cli.targets import LocalRun, phase_of
from trainmaster.cli.terminal import complain, tell
from trainmaster.core.report.story import story
from trainmaster.wire import bounded_json
from trainmaster.wire.files import open_to_read

_JOB_SUFFIXES = (".yaml", ".yml")
_MOST_SHOWN = 200  # letters of what was asked for
_STATUS_MEMBERS = frozenset({"phase", "attempt", "conditions", "restarts", "observedGeneration"})

Document = dict[str, Any]


class UnreadableError(Exception):
    """The document cannot be explained. The text names what was read, why, and the cure."""


def explain(what: str) -> int:
    """Run the command, and return its exit code."""
    try:
        content = _content(what)
        document = _parsed(content)
        if Path(what).is_file() and _lies_ahead(document, Path(what).suffix):
            return explain_job(what, content)
        if document and Path(what).is_dir():
            document |= LocalRun(Path(what)).correction(TrainingJobStatus.read(document))
        lines = explained(document, what)
    except UnreadableError as error:
        complain(f"trainmaster: {error}")
        return EXIT_BAD
    tell(lines)
    return EXIT_GOOD


def _lies_ahead(document: Document | None, suffix: str) -> bool:
    """Return whether it is a job that has not begun.

    A YAML file that cannot be parsed counts as one: `check` finds its errors.
    """
    if document is None:
        return suffix in _JOB_SUFFIXES
    return "spec" in document and not isinstance(document.get("status"), dict)


def explained(document: Document | None, what: str) -> tuple[str, ...]:
    """Return the lines for a document.

    Raises:
        UnreadableError: it is of no kind that has a story.
    """
    if document is None:
        raise UnreadableError(
            f"{what}: neither JSON nor YAML (of at most {yaml_text.MAX_BYTES >> 10} KiB) with an object in it"
        )
    for is_one, story_of in READERS:
        if is_one(document):
            return story_of(document)
    raise UnreadableError(f"{what}: neither a job's status nor a TrainingJob with one; name a run's folder or a file")


def _of_job(job: Document) -> tuple[str, ...]:
    metadata = job.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return story(TrainingJobStatus.read(job.get("status")), name if isinstance(name, str) else "")


def _of_status(status: Document) -> tuple[str, ...]:
    return story(TrainingJobStatus.read(status), phase=phase_of({"status": status}))


# Kinds of documents: the test for one, and its story. The first that fits is taken.
READERS: tuple[tuple[Callable[[Document], bool], Callable[[Document], tuple[str, ...]]], ...] = (
    (lambda document: isinstance(document.get("status"), dict), _of_job),
    (lambda document: bool(_STATUS_MEMBERS & set(document)), _of_status),
)


def _parsed(content: bytes) -> Document | None:
    for parse in (bounded_json.document, _last_line, _yaml):
        try:
            parsed = parse(content)
        except ValueError:
            continue
        if isinstance(parsed, dict):
            return parsed
    return None


def _last_line(content: bytes) -> object:
    """Return the last object of `trainmaster run --output json`, one of which stands in each line: it is the status."""
    return bounded_json.document(content.rstrip().rpartition(b"\n")[2])


def _yaml(content: bytes) -> object:
    """Return the first object of YAML, read as that of a job file: bounded, and in the meaning of kubectl."""
    return next((one.data for one in yaml_text.read(content) if isinstance(one.data, dict) and not one.problems), None)


def _content(what: str) -> bytes:
    """Return what is to be explained. What is in a folder of a run is opened as any file there: by no link."""
    if what == "-":
        return _bounded(sys.stdin.buffer, what)  # where it cannot be read, `main` says so as of any output or input
    path = Path(what)
    try:
        if path.is_dir():
            path /= "status.json"
            with os.fdopen(open_to_read(path), "rb") as file:
                return _bounded(file, what)
        with path.open("rb") as file:
            return _bounded(file, what)
    except OSError as error:
        named = str(path) if len(what) <= _MOST_SHOWN else f"{what[:_MOST_SHOWN]}..."
        cure = "name the folder of a run, or a file with its status. Of a job on a cluster: trainmaster status NAME"
        raise UnreadableError(f"{named}: {reason(error)}; {cure}") from None


def _bounded(file: BinaryIO, what: str) -> bytes:
    content = file.read(bounded_json.DOCUMENT_BYTES + 1)
    if len(content) > bounded_json.DOCUMENT_BYTES:
        raise UnreadableError(
            f"{what}: it has more than {bounded_json.DOCUMENT_BYTES >> 20} MiB, and no status has; of what a run has "
            "printed, the last line is enough (tail -n 1)"
        )
    return content
