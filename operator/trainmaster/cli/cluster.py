"""Say what the commands that talk to a cluster have in common: their options and exit codes."""

import argparse
import math
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from trainmaster.api.job_states import Phase
from trainmaster.cli.terminal import complain
from trainmaster.wire.names import BEFORE_A_NAME

FORMATS = ("json", "yaml", "wide", "name")
EXIT_GOOD, EXIT_FAILED, EXIT_INVALID, EXIT_CLUSTER, EXIT_LATE = 0, 1, 2, 3, 4

Add = Callable[[str, str, str], argparse.ArgumentParser]  # the function of main.py that adds a parser

SUBMIT = """Send a job to a cluster, with the code that it needs: the folder of JOB.yaml (or --code) as git sees it,
untracked files included, ignored ones not. It is packed to at most 8 MiB and lies in ConfigMaps that belong to the
job and go with it; each pod verifies it before anything starts. Nothing is left behind if this is interrupted. With
--code-url it has at most 128 MiB and lies in an object store, by its hash, where it stays. The keys here are the
variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, those of the pods a Secret with them.
Example: trainmaster submit job.yaml --set training.steps=500 --follow"""
CODE = "Bring back the code that a job on a cluster runs or has run. Example: trainmaster code digits -o /tmp/digits"
LIST = """Show the runs in .trainmaster/ here and the jobs of the cluster that the kubeconfig names, with the columns of
kubectl. Example: trainmaster list -A -o wide"""
STATUS = """Show one job: its row, its story, what is in its way, its code and its pods.
Example: trainmaster status digits"""
LOGS = """Show what a rank prints, rank 0 if no other is named; --all shows all replicas, each line after its replica's
name. With -f it goes on over restarts and new pods until the job has ended. --history --all has all that there is of
every worker and attempt, also after the end: a pod's log has all attempts that ran in it, the last three pods of a
replica that ended by themselves are kept with the job, and of pods that were deleted (a suspension, another size, a
drain) .status.lastLines has the end, of the first four replicas. What is gone is named with what the ledger has of it.
Example: trainmaster logs digits -f --all
Example: trainmaster logs digits --history --all"""
WAIT = """Wait until the job has ended, or is in the phase of --for. Exit code 0 if it succeeded or is in that phase, 1
if it failed, 4 if the time of --timeout is up; of several jobs the largest of these, when all have ended.
Example: trainmaster wait digits --timeout 3600"""
STOP = """Suspend a job: all its pods end, a task's after a checkpoint, and the job stays. A run on this machine saves
and ends, as by Ctrl-C. Example: trainmaster stop digits"""
RESUME = "Let a job that was stopped go on, from its newest checkpoint. Example: trainmaster resume digits"
SCALE = "Give a job another number of workers; it goes on from where it is. Example: trainmaster scale digits 8"
DELETE = """Delete a job with its pods and its code; what is on a claim or in a bucket stays. Of a run in .trainmaster/
all is deleted. Example: trainmaster delete digits"""


def add_commands(add: Add) -> None:
    """Add the commands to the command line."""
    _submit(add("submit", "send a job with its code to a cluster", SUBMIT))
    listed = add("list", "show runs here and jobs on a cluster", LIST)
    listed.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    listed.add_argument("--local", action="store_true", help="the runs here alone")
    listed.add_argument("-o", "--output", choices=FORMATS, help="wide has more columns")
    add_where(listed)
    listed.set_defaults(command=lambda options: _run("listing", "list_jobs", options))
    status = add("status", "show how one of them is", STATUS)
    _name(status)
    status.add_argument("-o", "--output", choices=FORMATS, help="the job as a document, or its row")
    status.set_defaults(command=lambda options: _run("listing", "status", options))
    _logs(add("logs", "show what its ranks print", LOGS))
    _driving(add)
    code = add("code", "bring back the code that a job runs", CODE)
    code.add_argument("name", type=name_of_job, metavar="NAME", help="the job")
    code.add_argument("-o", "--output", metavar="DIR", required=True, help="a new or empty folder")
    add_where(code)
    code.set_defaults(command=lambda options: _run("code_back", "run", options))


def _submit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB.yaml", help="the job; - for standard input")
    add_code(parser)
    add_set(parser)
    parser.add_argument("--follow", action="store_true", help="show the job and the log of rank 0 until the end")
    parser.add_argument("-o", "--output", choices=FORMATS, help="show the job that was made, in this format")
    add_where(parser)
    parser.set_defaults(command=lambda options: _run("submit", "run", options))


def _logs(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rank", type=whole, metavar="N", help="of the replica with this rank (default: 0)")
    which.add_argument("--all", action="store_true", help="of all replicas")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    when.add_argument("--previous", action="store_true", help="of the pod before the present one")
    when.add_argument("--history", action="store_true", help="of all pods that are there still, oldest first")
    parser.add_argument("--tail", type=whole, metavar="N", help="begin with the last N lines (on a cluster)")
    parser.set_defaults(command=lambda options: _run("job_logs", "logs", options))


def _driving(add: Add) -> None:
    for word, short, long in (
        ("wait", "wait for the end of one", WAIT),
        ("stop", "suspend one, so that it can go on later", STOP),
        ("resume", "let one go on", RESUME),
        ("scale", "give one another number of workers", SCALE),
        ("delete", "delete one", DELETE),
    ):
        parser = add(word, short, long)
        _name(parser, nargs=1 if word == "scale" else "+", dest="names")
        if word == "wait":
            told = "a phase, as Running (default: the end)"
            parser.add_argument("--for", dest="phase", choices=[*Phase], metavar="PHASE", help=told)
            parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="give up after so many seconds")
        if word == "stop":
            parser.add_argument("--force", action="store_true", help="even if its checkpoints go with its pods")
        if word == "scale":
            parser.add_argument("workers", type=whole, metavar="WORKERS", help="how many")
        parser.set_defaults(word=word, command=lambda options: _run("job_actions", "run", options))


def _name(parser: argparse.ArgumentParser, nargs: int | str | None = None, dest: str = "name") -> None:
    told = "a job on the cluster, or the folder of a run here"
    parser.add_argument(dest, nargs=nargs, type=name_of_job, metavar="NAME", help=told)
    add_where(parser)


def name_of_job(word: str) -> str:
    """Return the name that was typed, which may be as `list -o name` and kubectl print it."""
    return word.removeprefix(BEFORE_A_NAME)


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add --namespace and --context."""
    parser.add_argument("-n", "--namespace", metavar="NAME", help="the namespace (default: that of the context)")
    parser.add_argument("--context", metavar="NAME", help="the context of the kubeconfig (default: the current one)")


def add_code(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which code is sent, and by which way."""
    parser.add_argument("--code", metavar="DIR", help="the folder of the code (default: that of JOB.yaml)")
    parser.add_argument("--no-code", action="store_true", help="send none: the image has the code")
    parser.add_argument("--code-url", metavar="URL", help="put it into this folder of a bucket, s3://bucket/folder")
    secret = "Secret with the store's keys (default: that of checkpoint.storage)"
    parser.add_argument("--code-secret", metavar="NAME", help=secret)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add --set, which changes fields of the job."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change a field, as training.steps=500 (repeatable)",
    )


def whole(text: str) -> int:
    """Return the whole number that a word of the command line is."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def counted(text: str) -> int:
    """Return the whole number above 0 that a word of the command line is."""
    number = whole(text)
    if not number:
        raise argparse.ArgumentTypeError("1 is the least")
    return number


def _seconds(text: str) -> float:
    """Return the seconds that a word of the command line is."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (0 <= seconds < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _run(module: str, function: str, options: argparse.Namespace) -> int:
    if find_spec("kubernetes") is None:
        complain("a command for a cluster needs the Kubernetes client: pip install 'trainmaster[operator]'")
        return EXIT_INVALID
    code: int = getattr(import_module(f"trainmaster.cli.{module}"), function)(options)
    return code
