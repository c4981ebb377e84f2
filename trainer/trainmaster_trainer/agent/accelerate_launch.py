"""Do in a rank what `accelerate launch` would do before it starts a script: make variables of its options and its file.

It is run by the Python that accelerate is installed in, as a file by itself, and so imports nothing of ours. The first
argument is a command line (JSON) by which our own Python begins a rank, or []; all others are accelerate's. How many
processes there are, and where they meet, is the agent's affair: its variables stay as they are. A file that asks for
another number of processes than the job has is refused, as the option is before.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Dict, List, NoReturn

_TRAINING = "TRAINMASTER_TRAINING"  # as in `wire.names`
_IMPORTS = "TRAINMASTER_IMPORTS_FILE"  # likewise
_EXIT_BAD_CONFIGURATION = 78  # likewise
_AGENTS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


def main() -> None:
    """Have accelerate make the variables, and go on as the script."""
    sys.path.pop(0)  # the agent's own folder
    again: List[str] = json.loads(sys.argv[1])
    from accelerate.commands import launch  # noqa: PLC0415 it is the user's
    from accelerate.utils import launch as making  # noqa: PLC0415

    arguments = launch.launch_command_parser().parse_args(sys.argv[2:])
    if arguments.config_file and arguments.num_processes is None:
        _check_size(arguments.config_file, launch.load_config_from_file(arguments.config_file).num_processes)

    def start_many(args: argparse.Namespace) -> NoReturn:
        args.main_process_port = 0  # no rank looks for a port
        _start(args, making.prepare_multi_gpu_env(args), again)

    def start_deepspeed(args: argparse.Namespace) -> NoReturn:
        args.main_process_port = 0
        args.num_machines = 1  # else a hostfile is wanted
        _start(args, making.prepare_deepspeed_cmd_env(args)[1], again)

    def start_one(args: argparse.Namespace) -> NoReturn:
        _start(args, making.prepare_simple_launcher_cmd_env(args)[1], again)

    launch.multi_gpu_launcher, launch.simple_launcher = start_many, start_one
    launch.deepspeed_launcher = start_deepspeed
    launch.launch_command(arguments)


def _check_size(file: str, processes: Any) -> None:
    """End this rank where accelerate's file asks for another number of processes; -1 and None are as many as there are.

    The file is the user's, and need not lie where `trainmaster check` could read it.
    """
    here = int(os.environ["WORLD_SIZE"])
    if isinstance(processes, int) and processes > 0 and processes != here:
        sys.stderr.write(
            f"trainmaster: training.command: num_processes of {file} is {processes}, and the job has {here} in all: "
            f"set spec.workers.replicas to {processes}, or spec.workers.gpus where each process has a GPU, or correct "
            "num_processes\n"
        )
        sys.exit(_EXIT_BAD_CONFIGURATION)


def _start(args: argparse.Namespace, variables: Dict[str, str], again: List[str]) -> NoReturn:
    words = [args.training_script, *args.training_script_args]
    if not args.no_python:
        words = [sys.executable, "-u", *(["-m"] if args.module else []), *words]
    explicit = (
        "OMP_NUM_THREADS"
        if any("num_cpu_threads_per_process" in word.replace("-", "_") for word in sys.argv[2:])
        else ""
    )
    kept = {name: os.environ[name] for name in _AGENTS if name in os.environ and name != explicit}
    environment = {**variables, **kept}
    environment.pop(_IMPORTS, None)  # what it imports is of no use to the next attempt
    if again:
        plan: Dict[str, Any] = json.loads(environment[_TRAINING])
        environment[_TRAINING] = json.dumps({**plan, "command": words})
        words = again
    os.execvpe(words[0], words, environment)  # noqa: S606 no shell is what is wanted


if __name__ == "__main__":
    main()
