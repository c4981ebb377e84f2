"""Say what the commands that talk to a cluster have in common: their options and exit codes."""

import argparse
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from trainmaster.cli.terminal import complain

EXIT_INVALID, EXIT_CLUSTER = 2, 3

_Add = Any  # the function of main.py that adds a parser

SUBMIT = """Send a job to a cluster, with the code that it needs: the folder of JOB.yaml (or --code) as git sees it,
untracked files included, ignored ones not. It is packed to at most 8 MiB and lies in ConfigMaps that belong to the
job and go with it; each pod verifies it before anything starts. Nothing is left behind if this is interrupted.

    trainmaster submit job.yaml"""
CODE = """Bring back the code that a job on a cluster runs or has run.

    trainmaster code digits -o /tmp/digits"""


def add_commands(add: _Add) -> None:
    """Add the commands to the command line."""
    _submit(add("submit", "send a job with its code to a cluster", SUBMIT))
    _code(add("code", "bring back the code that a job runs", CODE))


def _submit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB.yaml", help="the job; - for standard input")
    parser.add_argument("--code", metavar="DIR", help="the folder of the code (default: that of JOB.yaml)")
    parser.add_argument("--no-code", action="store_true", help="send none: the image has the code")
    _where(parser)
    parser.set_defaults(command=lambda options: _run("submit", options))


def _code(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the job")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="a new or empty folder")
    _where(parser)
    parser.set_defaults(command=lambda options: _run("code_back", options))


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", metavar="NAME", help="the namespace (default: that of the context)")
    parser.add_argument("--context", metavar="NAME", help="the context of the kubeconfig (default: the current one)")


def _run(module: str, options: argparse.Namespace) -> int:
    if find_spec("kubernetes") is None:
        complain("a command for a cluster needs the Kubernetes client: pip install 'trainmaster[operator]'")
        return EXIT_INVALID
    code: int = import_module(f"trainmaster.cli.{module}").run(options)
    return code
