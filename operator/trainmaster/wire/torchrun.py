"""Pure: what a command line of torchrun asks for, read with the options of torch 2.15's `torch.distributed.run`.

The agent does torchrun's work, so each option is obeyed, or done by the agent in its own way, or refused with what to
write instead: none is dropped in silence.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import List, NoReturn, Sequence, Tuple, Union

from trainmaster.wire import launcher_line

# The agent's own affair: where ranks meet, when they are watched and how long they may take to end.
_AGENTS = (
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--node-rank", "--master-addr", "--master-port"),
    *("--local-addr", "--monitor-interval", "--start-method", "--event-log-handler", "--signals-to-handle"),
    *("--shutdown-timeout",),
)
_OUTPUT = "the output of every rank is in the log of its replica; leave the option out"
_REFUSED = {
    "--log-dir": _OUTPUT,
    "--redirects": _OUTPUT,
    "--tee": _OUTPUT,
    "--log-line-prefix-template": _OUTPUT,
    "--local-ranks-filter": _OUTPUT,
    "--duplicate-stdout-filters": _OUTPUT,
    "--duplicate-stderr-filters": _OUTPUT,
    "--logs-specs": _OUTPUT,
    "--numa-binding": "ranks are not bound to cores; leave the option out",
    "--virtual-local-rank": "each rank sees all devices of its replica; take the one with the number LOCAL_RANK",
    "--print-completion": "it prints a text and starts nothing",
    "--help": "it prints a text and starts nothing",
}
_SHORT = {"--redirects": "-r", "--tee": "-t", "--module": "-m", "--help": "-h"}
_FLAGS = ("--standalone", "--module", "--no-python", "--run-path", "--virtual-local-rank", "--help")
_LEGACY = "python -m torch.distributed.launch"  # it tells the local rank by an argument, unless --use-env
_NOT_ASKED = ("0", "", None, False)  # values that say the same as no option


class CommandError(Exception):
    """The command line cannot be carried out. The text says why, and what to write."""

    trainmaster_configuration_error = True


@dataclass(frozen=True)
class Launch:
    """Hold what is to be started. `nodes` and `per_node` are None where the command leaves them out."""

    program: str
    arguments: Tuple[str, ...]
    module: bool = False
    python: bool = True
    tells_local_rank: bool = False  # by an argument, as `torch.distributed.launch` does
    nodes: Union[Tuple[int, int], None] = None
    per_node: Union[str, None] = None
    role: str = "default"
    restarts: bool = False
    launcher: str = "torchrun"
    sized: bool = True  # the command says how many processes there are to be; else as many as there are devices
    size_option: str = "--nproc-per-node"
    local_rank_option: str = "--local-rank"
    words: Tuple[str, ...] = ()  # of accelerate, which makes variables of them


class _LineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(f"training.command: torchrun would not take this: {message}")


def launched(command: Sequence[str]) -> Union[Launch, None]:
    """Return what torchrun is to start, where `command` is one of torchrun's.

    Raises:
        CommandError: it is wrong, or asks for what Trainmaster does not do.
    """
    line = launcher_line.read(command)
    if line is None or line.launcher != "torchrun":
        return None
    legacy = line.called == _LEGACY
    found = _parser(legacy).parse_args([*line.words])
    for option, cure in _REFUSED.items():
        if getattr(found, _name(option)) not in _NOT_ASKED:
            raise CommandError(f"training.command: torchrun's {option} is not supported: {cure}")
    python = not found.no_python or found.run_path
    uses_env = not legacy or found.use_env
    if found.no_python and found.module:
        raise CommandError("training.command: --no-python and --module exclude one another; leave one of them out")
    if not python and not uses_env:
        raise CommandError("training.command: --no-python needs --use-env with torch.distributed.launch; add it")
    return Launch(
        found.training_script,
        tuple(found.training_script_args),
        module=found.module,
        python=python,
        tells_local_rank=not uses_env,
        nodes=None if found.nnodes is None else _range(found.nnodes),
        per_node=found.nproc_per_node,
        role=found.role,
        restarts=found.max_restarts not in (None, "0"),
    )


def _parser(legacy: bool) -> argparse.ArgumentParser:
    parser = _LineParser(add_help=False)
    for option in (*_AGENTS, *_REFUSED, *_FLAGS, "--nnodes", "--nproc-per-node", "--max-restarts"):
        if _name(option) not in parser._option_string_actions:  # noqa: SLF001 options stand in two lists
            _add(parser, option)
    _add(parser, "--role", default="default")
    if legacy:
        _add(parser, "--use-env", flag=True)
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def _add(parser: argparse.ArgumentParser, option: str, flag: bool = False, default: object = None) -> None:
    spellings: List[str] = [option, f"--{_name(option)}", *([_SHORT[option]] if option in _SHORT else [])]
    spellings = [one for one in dict.fromkeys(spellings) if one not in parser._option_string_actions]  # noqa: SLF001
    if option not in spellings:
        return
    if flag or option in _FLAGS:
        parser.add_argument(*spellings, dest=_name(option), action="store_true")
    else:
        parser.add_argument(*spellings, dest=_name(option), default=default)


def _name(option: str) -> str:
    return option[2:].replace("-", "_")


def _range(text: str) -> Tuple[int, int]:
    least, _, most = text.partition(":")
    if not (least.isdigit() and (most or least).isdigit() and 0 < int(least) <= int(most or least)):
        raise CommandError(f"training.command: --nnodes is a number or MIN:MAX, not {text!r}")
    return int(least), int(most or least)


def check_size(launch: Launch, replicas: int, ranks: int, per_node: Union[int, None]) -> None:
    """Compare a command with the job: `replicas` of `ranks` each. `per_node`: what --nproc-per-node comes to.

    A command for one machine may ask for as many processes as the job has in all; a command for each of several
    machines may ask for as many as each replica has.

    Raises:
        CommandError: the command asks for another number of processes.
    """
    if not launch.sized:
        return
    least, most = launch.nodes or (1, 1)
    each = 1 if per_node is None else per_node
    fits_each = each == ranks and (launch.nodes is None or least <= replicas <= most)
    if fits_each or least * each <= replicas * ranks <= most * each:
        return
    nodes = "" if launch.nodes is None else f" on {least if least == most else f'{least} to {most}'} nodes"
    raise CommandError(
        f"training.command: {launch.launcher} is to start {each} processes{nodes}, and the job has {replicas} "
        f"{'worker' if replicas == 1 else 'workers'} of {ranks}: set spec.workers.replicas to {least * each}, or "
        f"spec.workers.gpus to {each} where each process has a GPU, or correct {launch.size_option}"
    )
