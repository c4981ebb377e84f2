"""Run `trainmaster report NAME... -o FILE`: write what is known of trainings into one HTML file, to mail or to keep."""

import argparse
from pathlib import Path

from trainmaster.api.problem import reason
from trainmaster.cli.cluster import EXIT_GOOD, EXIT_INVALID
from trainmaster.cli.report_charts import COLOURS
from trainmaster.cli.report_page import BEGINNING, page
from trainmaster.cli.subjects import NotReadableError, read_all
from trainmaster.cli.tables import now
from trainmaster.cli.terminal import complain, tell
from trainmaster.wire.files import replace


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    if len(set(options.names)) > len(COLOURS):
        complain(f"trainmaster report: {len(COLOURS)} runs and jobs are the most")
        return EXIT_INVALID
    try:
        subjects = read_all(options)
        path = Path(options.output) if options.output else Path(f"{Path(subjects[0].name).name}.html")
        if _is_of_others(path):
            complain(f"trainmaster report: {path} is there already, and is no report; name another file with -o")
            return EXIT_INVALID
        replace(path, page(subjects, now()).encode(errors="backslashreplace"))
    except NotReadableError as error:
        complain(f"trainmaster report: {error}")
        return error.code
    except OSError as error:
        complain(f"trainmaster report: {path}: {reason(error)}")
        return EXIT_INVALID
    tell([f"{path}: open it in a browser, or mail it; it needs nothing beside it"])
    return EXIT_GOOD


def _is_of_others(path: Path) -> bool:
    """Return whether there is a file that no `report` has written."""
    try:
        with path.open("rb") as file:
            return file.read(len(BEGINNING)) != BEGINNING.encode()
    except FileNotFoundError:
        return False
