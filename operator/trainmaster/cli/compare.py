"""Run `trainmaster compare A B ...`: show what differs between trainings, and their figures side by side."""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence

from trainmaster.cli import differences
from trainmaster.cli.cluster import EXIT_GOOD, EXIT_INVALID
from trainmaster.cli.differences import Row
from trainmaster.cli.subjects import NotReadableError, Subject, read_all
from trainmaster.cli.terminal import complain, tell
from trainmaster.wire.printable import printable

_MOST, _NARROWEST_CELL, _LONGEST_CELL, _LONGEST_NAME = 16, 8, 60, 40


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    if not 2 <= len(set(options.names)) <= _MOST:  # noqa: PLR2004 it takes two
        complain(f"trainmaster compare: name 2 to {_MOST} different runs or jobs")
        return EXIT_INVALID
    try:
        subjects = read_all(options)
    except NotReadableError as error:
        complain(f"trainmaster compare: {error}")
        return error.code
    tell(json.dumps(_plain(subjects), indent=2).split("\n") if options.output == "json" else _lines(subjects))
    return EXIT_GOOD


def _lines(subjects: Sequence[Subject]) -> list[str]:
    specs, figures = differences.of_specs(subjects), differences.of_figures(subjects)
    unknown = [subject.name for subject in subjects if not subject.spec]
    heading: Row = ("", [subject.name for subject in subjects])
    said = [f"The job of {name} is not known: a version that kept none ran it" for name in unknown]
    if not specs and not unknown:
        said = ["Their specs are equal."]
    table = _table([heading, ("SPEC", []), *specs, ("FIGURES", []), *figures] if specs else [heading, *figures])
    return [*said, *table]


def _table(rows: Sequence[Row]) -> list[str]:
    """Return the rows in columns; on a terminal, cells are shortened so that a row fits."""
    texts = [(_cut(printable(name), _LONGEST_NAME), [printable(cell) for cell in cells]) for name, cells in rows]
    first = max(len(name) for name, _ in texts)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in texts if cells), strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size((80, 24)).columns - first
        each = max(room // len(widths) - 2, _NARROWEST_CELL)
    else:
        each = _LONGEST_CELL
    widths = [min(width, each) for width in widths]
    return [
        "  ".join(
            [name.ljust(first), *(_cut(cell, w).ljust(w) for cell, w in zip(cells, widths, strict=False))]
        ).rstrip()
        for name, cells in texts
    ]


def _cut(text: str, width: int) -> str:
    """Return the text or, where it is too long, both its ends: names of runs differ at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 2) // 2
    return f"{text[: width - 2 - tail]}..{text[len(text) - tail :]}"


def _plain(subjects: Sequence[Subject]) -> dict[str, object]:
    """Return the differences, for programs."""
    names = [subject.name for subject in subjects]
    specs, figures = differences.of_specs(subjects), differences.of_figures(subjects)
    return {
        "names": names,
        "spec": {path: dict(zip(names, cells, strict=False)) for path, cells in specs},
        "figures": {name: dict(zip(names, cells, strict=False)) for name, cells in figures},
    }
