"""Define the commands of `trainmaster`, with what must run before anything heavy is imported.

Each command imports what it needs when it is called: `trainmaster run` starts a process that imports torch before it
has even read the YAML.
"""

import argparse
import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

from trainmaster.api.problem import reason
from trainmaster.cli import cluster, standard_streams
from trainmaster.cli.help_texts import Formatter, overview
from trainmaster.cli.terminal import complain
from trainmaster.wire.printable import printable

_FULL = (errno.ENOSPC, errno.EDQUOT)
EPILOG = (
    "Exit codes: 0 good, 1 the job failed, 2 not a valid job, folder or command line, 3 the cluster cannot be reached "
    "or refuses, 4 the time of --timeout is up, 130 stopped by Ctrl-C."
)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run the command, and return its exit code."""
    standard_streams.prepare()
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(run_alone=words[:1] == ["run"]).parse_args(words)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        code = command(options)
        sys.stdout.flush()
    except BrokenPipeError:  # for example by a pipe into `head`
        standard_streams.drop_output()
        return 1
    except OSError as error:
        if error.errno is None:  # not an error of the kernel, but a bug
            raise
        unwritten = error.filename is None and error.errno in _FULL
        where = "standard output" if unwritten else error.filename
        with contextlib.suppress(OSError):  # stderr may be on the same full disk
            complain(f"trainmaster: {f'{where}: ' if where else ''}{reason(error)}")
        standard_streams.drop_output()
        return 1 if unwritten else 2
    except KeyboardInterrupt:
        return 130
    return code


class _CommandParser(argparse.ArgumentParser):
    """Report command lines that cannot be parsed, with control characters escaped."""

    overview: Callable[[], str] | None = None  # the help of the program itself

    def format_help(self) -> str:
        """Return the help, the commands of the program in groups."""
        return self.overview() if self.overview else super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the message, with what was probably meant, and exit."""
        unknown = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        option = re.search(r"unrecognized arguments: .*?(--[\w-]+)", message)
        if unknown or option:
            from trainmaster.api.wording import closest

            word, known = unknown.groups() if unknown else (option[1] if option else "", " ".join(self._all_options()))
            meant = closest(word, re.findall(r"[\w-]+", known))
            message += f". Did you mean {meant}?" if meant else ""
        super().error(printable(message))

    def _all_options(self) -> list[str]:
        """Return the long options of all commands: the program is asked, and does not know which one it was."""
        parsers = [
            parser for action in self._actions if isinstance(action.choices, dict) for parser in action.choices.values()
        ]
        actions = [action for parser in parsers for action in parser._actions]  # noqa: SLF001 (argparse has no other way)
        return [option for action in actions for option in action.option_strings if option.startswith("--")]


def _parser(*, run_alone: bool = False) -> argparse.ArgumentParser:
    """Return the parser of all commands, or of `run` alone, whose start waits for nothing that it does not need."""
    as_plugin = os.path.basename(sys.argv[0]) == "kubectl-trainmaster"  # noqa: PTH119 (pathlib takes longer to import)
    parser = _CommandParser(prog="kubectl trainmaster" if as_plugin else "trainmaster")
    from trainmaster import __version__

    parser.add_argument("--version", action="version", version=f"trainmaster {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _run(_command(commands, "run", "train a job on this machine", RUN))
    if run_alone:
        return parser
    from trainmaster.cli import file_commands, view_commands

    _check(_command(commands, "check", "check job files, with lines and cures", CHECK))
    advise = _command(commands, "advise", "say whether distributing pays, and by which strategy", ADVISE)
    advise.add_argument("job", metavar="JOB.yaml", help="the job")
    advise.add_argument("--network", metavar="BANDWIDTH", help="a cluster's link, as 10Gbit, instead of this machine's")
    advise.add_argument("--output", choices=("text", "json"), default="text", help="json: one object")
    advise.set_defaults(command=lambda options: _load("advise").advise(options.job, options.network, options.output))
    explain = _command(commands, "explain", "tell what happened to a job, and why", EXPLAIN)
    explain.add_argument("what", metavar="WHAT", help="a job file, the folder of a run, a file with a status, or -")
    explain.set_defaults(command=lambda options: _load("explain").explain(options.what))
    _export(_command(commands, "export", "write a trained model into one file", EXPORT))
    audit = _command(commands, "audit", "prove that a run used each sample once", AUDIT)
    audit.add_argument("folder", metavar="DIR", help="the --workdir of a run, or a folder of checkpoints")
    audit.set_defaults(command=lambda options: _load("audit").audit(options.folder))
    render = _command(commands, "render", "show the pods and services that a cluster would get", RENDER)
    render.add_argument("job", metavar="JOB.yaml", help="the job")
    render.set_defaults(command=lambda options: _load("render").render(options.job))
    _command(commands, "crd", "print the CustomResourceDefinition", CRD).set_defaults(
        command=lambda _: _load("crd").crd()
    )
    cluster.add_commands(lambda name, short, long: _command(commands, name, short, long))
    view_commands.add_commands(lambda name, short, long: _command(commands, name, short, long))
    file_commands.add_commands(lambda name, short, long: _command(commands, name, short, long), parser)
    _operator(_command(commands, "operator", "run the operator on a cluster", OPERATOR))
    parser.overview = lambda: _overview(parser, commands)
    return parser


def _overview(parser: argparse.ArgumentParser, commands: "_Commands") -> str:
    helps = {choice.dest: str(choice.help) for choice in commands._choices_actions}  # noqa: SLF001 (there is no other way)
    return overview(parser.format_usage().rstrip(), ABOUT, helps, EPILOG)


ABOUT = "Distributed training from one YAML: here, or on Kubernetes."
RUN = """Train the job with local processes, by the same rules as on a cluster. Without --workdir each run gets a
folder of its own under .trainmaster/; with it, a run goes on from the checkpoints that it finds there. Ctrl-C lets
the ranks save; another one, a second later or more, ends them at once.

With --fault the first rank of a replica suffers right after a step: kill:worker/1@step=50 is SIGKILL, stop: is SIGSTOP,
slow: makes each of its further steps take three times as long, oom: allocates until a limit set for it (RLIMIT_AS,
256 MiB more than it has) refuses, so that it dies of a MemoryError; a container's limit would kill it.
corrupt-checkpoint@step=N changes one byte of the checkpoint that is the newest then, that of step N where one is due
(it is waited for); it is found when it is next read. Each fault comes once, is shown, and the last lines tell what it
cost.

Example: trainmaster run job.yaml --set training.steps=500 --fault kill:worker/1@step=50"""
CHECK = "Tell everything that is wrong with job files, each problem with its line and its cure. Nothing is started. \
Example: trainmaster check job.yaml --set workers.replicas=8"
ADVISE = """Run a few steps of the job's model on this machine, predict each strategy by a written cost model
(operator/trainmaster/advice/cost.py), and say which to take. With --network the ranks are on machines of their own.
Example: trainmaster advise job.yaml --network 10Gbit"""
EXPLAIN = """Of a job file: which processes there will be, who talks to whom, the bytes of a step and the memory of a
device for this very model, and what a failure does. Of a job that has run: its story in plain sentences, what died and
where, the evidence, what it cost, what was decided and why. From a cluster:
kubectl get tj NAME -o json | trainmaster explain -
Example: trainmaster explain .trainmaster/digits-20260101-120000"""
AUDIT = """Look at the metrics and checkpoints of a run: is each step there exactly once, whatever restarts there were,
and do all checkpoints agree on the order of the samples? Exit code 1 if not. Samples that the strategy leaves out by
itself (ParameterServer's backupWorkers) are counted, and no fault. Example: trainmaster audit /tmp/digits"""
EXPORT = """Write the model of a run's newest checkpoint, or of its best one (--best), into one file that plain torch
loads. WHAT is the folder of a run or of checkpoints, its URL in an object store, or the name of a job: first of a run
under .trainmaster/ here, then of a job on the cluster, if its storage can be reached from here.
Example: trainmaster export digits --best -o digits.safetensors"""
RENDER = """Print the service and the pods that a cluster would get for this job, as YAML. No cluster is asked.
Example: trainmaster render job.yaml"""
CRD = """Print the CustomResourceDefinition of TrainingJob, for kubectl apply -f -.
Example: trainmaster crd | kubectl apply -f -"""
OPERATOR = """Serve the TrainingJobs of a cluster: inside it by its service account, outside by KUBECONFIG. The chart
in charts/trainmaster starts this with what it needs. Example: trainmaster operator --namespace team"""

_Commands = Any  # argparse has no public type for add_subparsers()


def _command(commands: _Commands, name: str, short: str, description: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=short, description=description, epilog=EPILOG, formatter_class=Formatter
    )
    return parser


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB.yaml", help="the job; relative paths in it start at its folder")
    cluster.add_set(parser)
    parser.add_argument("--workdir", metavar="DIR", help="folder for checkpoints, logs and status")
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="json: one object per line, the last is the job's .status",
    )
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND:ROLE/INDEX@step=N", help="a fault to suffer (repeatable)"
    )
    parser.set_defaults(
        command=lambda options: _load("run").run(
            options.job, options.workdir, options.output, options.fault, options.set
        )
    )


def _check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="YAML files with one TrainingJob each; - for standard input"
    )
    cluster.add_set(parser)
    parser.add_argument("--output", choices=("text", "json"), default="text", help="json: one object for all files")
    parser.set_defaults(command=lambda options: _load("check").check(options.files, options.output, options.set))


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="WHAT", help="a folder, a URL, or the name of a job")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    parser.add_argument("--format", choices=("safetensors", "torch"), help="torch: torch.save; unset: as FILE ends")
    parser.add_argument("--best", action="store_true", help="the checkpoint that spec.checkpoint.best keeps")
    parser.add_argument("--ema", action="store_true", help="the moving average of the weights (spec.training.ema)")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="of a job on the cluster")
    parser.add_argument("--context", metavar="NAME", help="the context of the kubeconfig")
    parser.set_defaults(command=_run_export)


def _run_export(options: argparse.Namespace) -> int:
    module = _load("export")
    wanted = module.ExportRequest(
        options.what, options.output, options.format, options.best, options.namespace, options.context, options.ema
    )
    code: int = module.export(wanted)
    return code


def _operator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", action="append", default=[], help="watch this namespace only (repeatable)")
    parser.add_argument(
        "--lease", default="", metavar="NAMESPACE/NAME", help="of several operators, lead by this Lease"
    )
    parser.add_argument("--listen", default="0.0.0.0:8080", help="where agents call in (default %(default)s)")
    parser.add_argument("--probes", default="0.0.0.0:8081", help="where /healthz answers (default %(default)s)")
    parser.add_argument("--readiness", default="0.0.0.0:8082", help="where /readyz answers (default %(default)s)")
    parser.add_argument("--metrics", default="", metavar="HOST:PORT", help="where /metrics answers; none if left out")
    parser.set_defaults(command=lambda options: _load("operator").run(options))


def _load(command: str):  # type: ignore[no-untyped-def]  # noqa: ANN202  a module
    return import_module(f"trainmaster.cli.{command}")


if __name__ == "__main__":
    sys.exit(main())
