"""Run `trainmaster plot NAME...`: draw the curves of runs and jobs in the terminal."""

import argparse
import json
import os
import shutil
import sys

from trainmaster.api.wording import closest
from trainmaster.cli import drawing
from trainmaster.cli.cluster import EXIT_GOOD, EXIT_INVALID
from trainmaster.cli.curves import Curve
from trainmaster.cli.subjects import NotReadableError, Subject, read_all
from trainmaster.cli.terminal import complain, tell, tell_of_a_log
from trainmaster.core.figures import short
from trainmaster.wire.printable import printable

_ROWS, _NARROWEST, _WIDEST = 10, 30, 400
_MOST_NAMED = 12
_COLOURS = ("36", "33", "35", "32", "34", "31")
DEFAULT = "loss"


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    try:
        subjects = read_all(options)
    except NotReadableError as error:
        complain(f"trainmaster plot: {error}")
        return error.code
    if options.output == "json":
        points = [{name: curve.points for name, curve in subject.curves.by_name.items()} for subject in subjects]
        named = zip(subjects, points, strict=True)
        tell([json.dumps({"name": one.name, "phase": one.phase, "curves": curves}) for one, curves in named])
        return EXIT_GOOD
    wanted = options.metric or [DEFAULT]
    for subject in subjects:
        if why := _nothing(subject, wanted):
            complain(f"trainmaster plot: {why}")
            return EXIT_INVALID
    for figure in wanted:
        _draw(figure, subjects)
    return EXIT_GOOD


def _nothing(subject: Subject, wanted: list[str]) -> str:
    """Return why there is nothing to draw; empty if there is."""
    known = subject.curves.by_name
    missing = next((figure for figure in wanted if figure not in known), None)
    if missing is None:
        return ""
    if not known and subject.curves.torn:
        return (
            f"{subject.name}: its metrics.jsonl is no metrics file: of its {subject.curves.torn} lines none tells of a "
            "step. Put the run's own file back"
        )
    if not known:
        told = "a task tells its loss by itself, a script by session.report or training.progress (docs/scripts.md)"
        return f"{subject.name} has no curve ({subject.phase}): {told}"
    meant = closest(missing, known)
    cure = f"Did you mean {meant}?" if meant else f"It has {', '.join(list(known)[:_MOST_NAMED])}"
    return f"{subject.name} has no figure {missing}. {cure}"


def _draw(figure: str, subjects: list[Subject]) -> None:
    """Draw a figure of each subject, all on the same scale of values."""
    drawn = [(subject, subject.curves.by_name[figure]) for subject in subjects]
    values = [value for _, curve in drawn for _, value in curve.points]
    scale = (min(values), max(values))
    width = min(max(shutil.get_terminal_size((80, 24)).columns, _NARROWEST), _WIDEST)
    braille, colours = _has_braille(), sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for number, (subject, curve) in enumerate(drawn):
        tell(_title(figure, subject, curve, width))
        for line in drawing.panel(curve.points, scale, (width, _ROWS), braille=braille):
            colour = _COLOURS[number % len(_COLOURS)]
            tell_of_a_log(f"\x1b[{colour}m{line}\x1b[0m" if colours else line)
        tell(_below(subject, curve, scale, width))


def _title(figure: str, subject: Subject, curve: Curve, width: int) -> list[str]:
    """Return the title in one line, or in two where one would cut off a figure."""
    ends = [f"last {short(curve.last[1])}"]
    if curve.low and curve.high:
        ends += [
            f"least {short(curve.low[1])} at step {curve.low[0]}",
            f"most {short(curve.high[1])} at {curve.high[0]}",
        ]
    told = printable(f"{figure}  {', '.join(ends)}")
    name = printable(f"{subject.name} ({subject.phase})")
    lines = [f"{name}  {told}"] if len(name) + 2 + len(told) <= width else [name, told]
    return [line[:width] for line in lines]


def _below(subject: Subject, curve: Curve, scale: tuple[float, float], width: int) -> list[str]:
    """Return what is said below a panel: where it was restarted, and what could not be read."""
    steps = [record.step for record in subject.status.restarts]
    pointing = drawing.marks(steps, curve.points, scale, width) if steps else ""
    said = [pointing, f"^ restart at step {', '.join(map(str, steps[-_MOST_NAMED:]))}"] if pointing else []
    if subject.curves.torn:
        said.append(f"{subject.curves.torn} lines of metrics.jsonl cannot be read, and are left out")
    return [*said, ""]


def _has_braille() -> bool:
    try:
        "⠀│└─".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
