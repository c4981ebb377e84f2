"""`trainmaster`: the commands, and the few lines that must run before anything heavy is imported.

Each command imports what it needs when it is called: `trainmaster run` starts to import torch in a process of its
own before this one has even read the YAML.
"""

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module

EPILOG = "Exit codes: 0 good, 1 the job failed, 2 not a valid job or command line, 130 stopped by Ctrl-C."


def main(arguments: list[str] | None = None) -> int:
    """Parse, and hand over to the command."""
    parser = _parser()
    options = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except BrokenPipeError:  # somebody piped us into `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at its end
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainmaster", description="Distributed training from one YAML: here, or on Kubernetes.", epilog=EPILOG
    )
    from trainmaster import __version__

    parser.add_argument("--version", action="version", version=f"trainmaster {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _run(commands.add_parser("run", help="train a job on this machine", description=RUN, epilog=EPILOG))
    _check(commands.add_parser("check", help="check job files, with lines and cures"))
    _render(commands.add_parser("render", help="show the pods and services that a cluster would get"))
    _crd(commands.add_parser("crd", help="print the CustomResourceDefinition"))
    _operator(commands.add_parser("operator", help="run the operator (inside a cluster, or with KUBECONFIG)"))
    return parser


RUN = """Train the job with local processes, by the same rules as on a cluster. Without --workdir each run gets a
folder of its own under .trainmaster/; with it, a run goes on from the checkpoints that it finds there."""


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB.yaml")
    parser.add_argument("--workdir", metavar="DIR", help="folder for checkpoints, logs and status")
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="json: one object per line, the last is the job's .status",
    )
    parser.set_defaults(command=lambda options: _load("run").run(options.job, options.workdir, options.output))


def _check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.set_defaults(command=lambda options: _load("check").check(options.files, options.output))


def _render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB.yaml")
    parser.set_defaults(command=lambda options: _load("render").render(options.job))


def _crd(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=lambda _: _load("crd").crd())


def _operator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", action="append", default=[], help="watch this namespace only (repeatable)")
    parser.add_argument("--listen", default="0.0.0.0:8080", help="where agents call in (default %(default)s)")
    parser.add_argument("--probes", default="0.0.0.0:8081", help="where /healthz and /readyz answer")
    parser.set_defaults(command=lambda options: _load("operator").run(options))


def _load(command: str):  # type: ignore[no-untyped-def]  # noqa: ANN202  a module
    return import_module(f"trainmaster.cli.{command}")


if __name__ == "__main__":
    sys.exit(main())
