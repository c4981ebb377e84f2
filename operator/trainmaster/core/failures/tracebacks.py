"""Read the error of a Python program that another interpreter has run: its traceback is in what it printed last.

A script of another framework often runs in an environment of its own, where nothing of ours writes an error file.
"""

import dataclasses
import re

from trainmaster.wire.messages import ErrorReport, ExitReport

_BEGIN = "Traceback (most recent call last):"
_ERROR = re.compile(r"(?:\w+\.)*(\w+)(?:: (.*))?")
_FRAME = re.compile(r'  File "(.{1,300})", line (\d+), in (\S{1,200})')
_PYTHON_ERROR = 1  # the exit code of an uncaught exception


def with_error(report: ExitReport) -> ExitReport:
    """Return the report with the error that its last words end with, if they do and it has none."""
    if report.error is not None or report.exit_code != _PYTHON_ERROR or report.hung:
        return report
    return dataclasses.replace(report, error=read(report.said))


def read(said: str) -> ErrorReport | None:
    """Return the error of the last traceback; None where there is none. Libraries may print more after it."""
    _, begin, text = said.rpartition(_BEGIN)
    if not begin:
        return None
    lines = text.strip("\n").split("\n")
    place = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), None)
    found = _ERROR.fullmatch(lines[place].strip()) if place is not None else None
    if place is None or found is None:
        return None
    frames = [frame for line in lines[:place] if (frame := _FRAME.match(line))]
    where = f"{frames[-1][1]}:{frames[-1][2]} in {frames[-1][3]}" if frames else ""
    return ErrorReport(found[1], found[2] or "", where, _BEGIN + "\n" + "\n".join(lines[: place + 1]))
