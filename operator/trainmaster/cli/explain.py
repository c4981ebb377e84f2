"""`trainmaster explain WHAT`: what will happen to a job that has not run, and the story of one that has.

A job file without a status is looked at ahead (explain_job.py). Else WHAT is the folder of a local run, a file or `-`:
`.status`, a TrainingJob (`kubectl get tj NAME -o json`), or the output of `trainmaster run --output json`. What to make
of a document stands in READERS: one line per kind.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from trainmaster.api.problem import reason
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli.check import EXIT_BAD, EXIT_GOOD
from trainmaster.cli.explain_job import explain_job
from trainmaster.cli.terminal import complain, tell
from trainmaster.core.story import story

_JOB_SUFFIXES = (".yaml", ".yml")
_MOST_BYTES = 16 << 20
_MOST_SHOWN = 200  # letters of what was asked for
_STATUS_MEMBERS = frozenset({"phase", "attempt", "conditions", "restarts", "observedGeneration"})

Document = dict[str, Any]


class UnreadableError(Exception):
    """There is nothing to tell. The text names what was read, why, and the cure."""


def explain(what: str) -> int:
    """The command. Returns its exit code."""
    try:
        content = _content(what)
        document = _parsed(content)
        if Path(what).is_file() and _lies_ahead(document, Path(what).suffix):
            return explain_job(what, content)
        lines = explained(document, what)
    except UnreadableError as error:
        complain(f"trainmaster: {error}")
        return EXIT_BAD
    tell(lines)
    return EXIT_GOOD


def _lies_ahead(document: Document | None, suffix: str) -> bool:
    """Whether it is a job that nobody has begun. So is a broken file that is called YAML: `check` knows its lines."""
    if document is None:
        return suffix in _JOB_SUFFIXES
    return "spec" in document and not isinstance(document.get("status"), dict)


def explained(document: Document | None, what: str) -> tuple[str, ...]:
    """The lines for a document.

    Raises:
        UnreadableError: it is of no kind that has a story.
    """
    if document is None:
        raise UnreadableError(f"{what}: neither JSON nor YAML with an object in it")
    for is_one, story_of in READERS:
        if is_one(document):
            return story_of(document)
    raise UnreadableError(f"{what}: neither a job's status nor a TrainingJob with one; name a run's folder or a file")


def _of_job(job: Document) -> tuple[str, ...]:
    metadata = job.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return story(TrainingJobStatus.read(job.get("status")), name if isinstance(name, str) else "")


def _of_status(status: Document) -> tuple[str, ...]:
    return story(TrainingJobStatus.read(status))


# Whether it is one, and what there is to tell of it. The first that fits.
READERS: tuple[tuple[Callable[[Document], bool], Callable[[Document], tuple[str, ...]]], ...] = (
    (lambda document: isinstance(document.get("status"), dict), _of_job),
    (lambda document: bool(_STATUS_MEMBERS & set(document)), _of_status),
)


def _parsed(content: bytes) -> Document | None:
    text = content.decode(errors="replace")
    for parse in (json.loads, _last_line, yaml.safe_load):
        try:
            parsed = parse(text)
        except (ValueError, RecursionError, yaml.YAMLError, KeyError, AttributeError):
            continue  # the last two are of `!!bool x` and `!!timestamp x`
        if isinstance(parsed, dict):
            return parsed
    return None


def _last_line(text: str) -> object:
    """Of `trainmaster run --output json`: one object per line, the last is the status."""
    lines = [line for line in text.splitlines() if line.strip()]
    return json.loads(lines[-1]) if lines else None


def _content(what: str) -> bytes:
    if what == "-":
        return sys.stdin.buffer.read(_MOST_BYTES)
    path = Path(what)
    try:
        if path.is_dir():
            path /= "status.json"
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        named = str(path) if len(what) <= _MOST_SHOWN else f"{what[:_MOST_SHOWN]}..."
        cure = "name the folder of a run, or a file with its status"
        raise UnreadableError(f"{named}: {reason(error)}; {cure}") from None
