"""Define the commands that make files for people and their tools: init, schema, completion, convert."""

import argparse
from importlib import import_module

from trainmaster.cli.cluster import Add

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


def add_commands(add: Add, parser: argparse.ArgumentParser) -> None:
    """Add the commands to the command line. `parser` is the one of all commands, which completion looks at."""
    _init(add("init", "write a job and a training to begin with", INIT))
    _convert(add("convert", "turn another operator's job into a TrainingJob", CONVERT))
    add("schema", "print a JSON Schema for editors", SCHEMA).set_defaults(
        command=lambda _: import_module("trainmaster.cli.json_schema").print_schema()
    )
    completion = add("completion", "print completion for a shell", COMPLETION)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(command=lambda options: import_module("trainmaster.cli.completion").run(options, parser))


def _init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="where to (default: here)")
    parser.add_argument("--script", action="store_true", help="a script with a training loop of its own, not a task")
    parser.add_argument("--name", help="the job's name (default: that of the folder)")
    parser.set_defaults(command=lambda options: import_module("trainmaster.cli.init").run(options))


def _convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="WHAT", nargs="+", help="a YAML file, - for standard input, or a torchrun line")
    parser.add_argument("-o", "--output", metavar="FILE", help="a new file for the job (default: standard output)")
    parser.set_defaults(command=lambda options: import_module("trainmaster.cli.convert").run(options))
