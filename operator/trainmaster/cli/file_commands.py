"""Define the commands that make files for people and their tools: init, schema, completion, convert; and sweep."""

import argparse
from importlib import import_module

from trainmaster.cli.cluster import Add, add_code, add_set, add_where, counted, whole

INIT = """Write a job.yaml and a train.py that work as they are, to be changed into your own. Nothing is asked, and
nothing that is there is overwritten. Example: trainmaster init my-model && trainmaster run my-model/job.yaml"""
SCHEMA = """Print a JSON Schema of TrainingJob, by which editors complete and check job files. With it in a file, the
line `# yaml-language-server: $schema=trainingjob.schema.json` on top of a job file is enough for most of them.
Example: trainmaster schema > trainingjob.schema.json"""
COMPLETION = """Print a script by which your shell completes commands, options, files and the names of runs.
Example: source <(trainmaster completion bash)"""
CONVERT = """Print a TrainingJob for a job of another operator (PyTorchJob, TFJob, MPIJob, JAXJob, XGBoostJob, TrainJob,
RayJob), or for a line of torchrun. Each field that has no counterpart is named on standard error, with what to do.
Example: trainmaster convert pytorchjob.yaml -o job.yaml
Example: trainmaster convert -- torchrun --nproc-per-node 4 train.py --lr 0.1"""

SWEEP = """Train a job with many values of some of its fields, at most --parallel at a time, and find the best by a
figure of the evaluation, a metric or the loss. Here each is a run in .trainmaster/; with --submit, -n or --context each
is a job on the cluster. What is done stays: after Ctrl-C, or whatever ends it, the same command goes on.
Example: trainmaster sweep job.yaml --over training.arguments.lr=0.1,0.01 --over training.seed=1,2,3 --metric accuracy
Example: trainmaster sweep job.yaml --random 20 --over training.arguments.lr=log:1e-4..1e-1 --parallel 2"""


def add_commands(add: Add, parser: argparse.ArgumentParser) -> None:
    """Add the commands to the command line. `parser` is the one of all commands, which completion looks at."""
    init = add("init", "write a job and a training to begin with", INIT)
    init.add_argument("folder", metavar="DIR", nargs="?", default=".", help="where to (default: here)")
    init.add_argument("--script", action="store_true", help="a script with a training loop of its own, not a task")
    init.add_argument("--name", help="the job's name (default: that of the folder)")
    init.set_defaults(command=lambda options: import_module("trainmaster.cli.init").run(options))
    convert = add("convert", "turn another operator's job into a TrainingJob", CONVERT)
    convert.add_argument(
        "what", metavar="WHAT", nargs="+", help="a YAML file, - for standard input, or a torchrun line"
    )
    convert.add_argument("-o", "--output", metavar="FILE", help="a new file for the job (default: standard output)")
    convert.set_defaults(command=lambda options: import_module("trainmaster.cli.convert").run(options))
    add("schema", "print a JSON Schema for editors", SCHEMA).set_defaults(
        command=lambda _: import_module("trainmaster.cli.json_schema").print_schema()
    )
    _sweep(add("sweep", "train a job with many values, and find the best", SWEEP))
    completion = add("completion", "print completion for a shell", COMPLETION)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(
        command=lambda options: import_module("trainmaster.cli.shell_completion").run(options, parser)
    )


def _sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB.yaml", help="the job; - for standard input, on a cluster")
    parser.add_argument(
        "--over",
        action="append",
        default=[],
        metavar="PATH=VALUES",
        help="values as 0.1,0.01, or with --random a range as 16..128 or log:1e-4..1e-1 (repeatable)",
    )
    add_set(parser)
    parser.add_argument("--random", type=counted, metavar="N", help="so many by chance, not the whole grid")
    parser.add_argument("--seed", type=whole, default=0, metavar="N", help="of that chance (default: %(default)s)")
    parser.add_argument("--parallel", type=counted, metavar="K", help="at most so many at a time (here 1, there 4)")
    parser.add_argument("--metric", default="loss", metavar="FIGURE", help="what the best is found by (default: loss)")
    parser.add_argument("--mode", choices=("min", "max"), help="min: small is good (default: of a loss or an error)")
    parser.add_argument(
        "--value",
        choices=("last", "best"),
        help="of each run its last evaluation, or its best one (default: best where checkpoint.best keeps it)",
    )
    parser.add_argument("--name", help="of the sweep; its jobs are NAME-01, ... (default: JOB-sweep)")
    parser.add_argument("--submit", action="store_true", help="on the cluster of the current context")
    add_code(parser)
    add_where(parser)
    parser.set_defaults(command=lambda options: import_module("trainmaster.cli.sweep").run(options))
