"""Pure: what a launcher is to start, whichever it is: torchrun, deepspeed, `accelerate launch`.

The agent does a launcher's work. So its options are obeyed, or done by the agent in its own way, or refused with what
to write instead. Those of accelerate that become variables are translated by accelerate itself, in the rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, List, Sequence, Tuple, Union

from trainmaster.wire import launcher_line, torchrun
from trainmaster.wire.torchrun import CommandError, Launch

# Options of `accelerate launch` (1.15) that have no value; each other one has one.
_ACCELERATE_FLAGS = frozenset(
    {
        *("quiet", "q", "debug", "m", "module", "no_python", "cpu", "multi_gpu", "tpu", "use_mps_device", "use_fsdp"),
        *("use_deepspeed", "use_megatron_lm", "use_parallelism_config", "enable_cpu_affinity", "same_network"),
        *("dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation", "downcast_bf16"),
        *("tpu_cluster", "no_tpu_cluster", "tpu_use_sudo", "fp8_use_autocast_during_eval"),
    }
)
_DEEPSPEED_FLAGS = frozenset(
    {
        *("module", "m", "no_python", "no_local_rank", "enable_each_rank_log", "save_pid", "force_multi"),
        *("elastic_training", "no_ssh_check", "no_ssh", "bind_cores_to_rank"),
    }
)
_MACHINES = "which machines take part is what spec.workers says; leave the option out"
_REFUSED = {
    "accelerate": {"tpu": "use spec.workers.accelerator: tpu and `python`", "tpu_cluster": _MACHINES},
    "deepspeed": {
        "include": _MACHINES,
        "i": _MACHINES,
        "exclude": _MACHINES,
        "e": _MACHINES,
        "autotuning": "it starts many jobs of its own; run it outside of Trainmaster",
        "bind_cores_to_rank": "ranks are not bound to cores; leave the option out",
    },
}


@dataclass(frozen=True)
class _Words:
    """_Words are a launcher's options by their names with underscores, and the program with its arguments."""

    options: Dict[str, str]
    program: str
    arguments: Tuple[str, ...]


def launched(command: Sequence[str]) -> Union[Launch, None]:
    """Return what a launcher is to start; None where `command` is no launcher's.

    Raises:
        CommandError: it is wrong, or asks for what Trainmaster does not do.
    """
    line = launcher_line.read(command)
    if line is not None and line.launcher == "accelerate":
        return _accelerate(line.words)
    if line is not None and line.launcher == "deepspeed":
        return _deepspeed(line.words)
    return torchrun.launched(command)


def _accelerate(words: Sequence[str]) -> Launch:
    found = _split("accelerate", words, _ACCELERATE_FLAGS)
    processes, machines = _count(found, "num_processes"), _count(found, "num_machines")
    if processes and machines and processes % machines:
        raise CommandError(
            f"training.command: accelerate cannot share {processes} processes among {machines} machines; correct "
            "--num_processes, which is that of all machines together"
        )
    launch = _launch("accelerate", found)
    return replace(
        launch,
        nodes=(machines, machines) if machines else None,
        per_node=str(processes // (machines or 1)) if processes else None,
        sized=processes is not None,
        size_option="--num_processes",
        words=tuple(words),
    )


def _deepspeed(words: Sequence[str]) -> Launch:
    found = _split("deepspeed", words, _DEEPSPEED_FLAGS)
    each, nodes = _count(found, "num_gpus"), _count(found, "num_nodes")
    launch = _launch("deepspeed", found)
    told = "no_local_rank" not in found.options
    return replace(
        launch,
        nodes=(nodes, nodes) if nodes else None,
        per_node=str(each) if each else None,
        sized=each is not None,
        size_option="--num_gpus",
        tells_local_rank=told,
        local_rank_option="--local_rank",
    )


def _launch(launcher: str, found: _Words) -> Launch:
    options = found.options
    module = "module" in options or "m" in options
    if module and "no_python" in options:
        raise CommandError("training.command: --no_python and --module exclude one another; leave one of them out")
    return Launch(
        found.program,
        found.arguments,
        module=module,
        python="no_python" not in options,
        restarts=options.get("max_restarts", "0") != "0",
        launcher=launcher,
    )


def _split(launcher: str, words: Sequence[str], flags: FrozenSet[str]) -> _Words:
    """Return the options before the program, which is the first word that is none."""
    options: Dict[str, str] = {}
    rest: List[str] = [*words]
    while rest and rest[0].startswith("-"):
        name, sign, value = rest.pop(0).lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name in ("help", "h"):
            raise CommandError(f"training.command: {launcher} --help prints a text and starts nothing")
        if name in _REFUSED[launcher]:
            cure = _REFUSED[launcher][name]
            raise CommandError(f"training.command: {launcher}'s --{name} is not supported: {cure}")
        if not sign and name not in flags:
            if not rest:
                raise CommandError(f"training.command: {launcher}'s --{name} has no value")
            value = rest.pop(0)
        options[name] = value
    if not rest:
        raise CommandError(f"training.command: {launcher} is given no program to start; add it, for example train.py")
    return _Words(options, rest[0], tuple(rest[1:]))


def _count(found: _Words, name: str) -> Union[int, None]:
    text = found.options.get(name, "")
    if text in ("", "-1"):  # deepspeed's word for all
        return None
    if not text.isdigit() or not int(text):
        raise CommandError(f"training.command: --{name} is a number from 1 on, not {text!r}")
    return int(text)
