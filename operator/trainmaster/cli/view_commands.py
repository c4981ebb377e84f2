"""Define the commands that look at trainings: plot, compare, report."""

import argparse
from importlib import import_module

from trainmaster.cli.cluster import Add, add_where, name_of_job

PLOT = """Draw the curves of runs here and jobs on a cluster in the terminal: the loss, or other figures by --metric.
Of a run they are read from its metrics.jsonl, of a job from .status.history, also when its pods are gone.
Example: trainmaster plot digits --metric loss --metric 'eval accuracy'"""

COMPARE = """Show what differs between the specs of runs and jobs, and how each of them went, side by side. Values of
variables whose names say that they are secret are hidden.
Example: trainmaster compare .trainmaster/digits-1 .trainmaster/digits-2"""
REPORT = """Write one HTML file with the curves of runs and jobs, their restarts and what each cost, where the time
went, and what differs between them. It loads nothing and runs no script: mail it, or keep it when the job is gone.
Example: trainmaster report digits digits-wide -o digits.html"""


def add_commands(add: Add) -> None:
    """Add the commands to the command line."""
    plot = add("plot", "draw the curves of runs and jobs", PLOT)
    _names(plot)
    plot.add_argument(
        "--metric", action="append", default=[], metavar="FIGURE", help="which (repeatable; default: loss)"
    )
    plot.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: the points")
    plot.set_defaults(command=lambda options: import_module("trainmaster.cli.plot").run(options))
    compare = add("compare", "show what differs between runs or jobs", COMPARE)
    _names(compare)
    compare.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: one object")
    compare.set_defaults(command=lambda options: import_module("trainmaster.cli.compare").run(options))
    report = add("report", "write runs and jobs into one HTML file", REPORT)
    _names(report)
    report.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: NAME.html)")
    report.set_defaults(command=lambda options: import_module("trainmaster.cli.report").run(options))


def _names(parser: argparse.ArgumentParser) -> None:
    told = "jobs on the cluster, or folders of runs here"
    parser.add_argument("names", nargs="+", type=name_of_job, metavar="NAME", help=told)
    add_where(parser)
