"""Pure: what a TrainingPlan's command line means for a process that is Python already.

Called by `rank`. `python train.py` needs no new interpreter, and torchrun's work is done already, by the agent.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence, Tuple

SCRIPT = "script"  # a file to run as __main__
MODULE = "module"  # as `python -m` does
EXECUTE = "execute"  # replace the process

_PYTHON = re.compile(r"python(3(\.\d+)?)?$")
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
# Options of torchrun that are not followed by a value of their own.
_TORCHRUN_FLAGS = frozenset(
    ("--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank", "--use-env", "--help", "-h")
)


@dataclass(frozen=True)
class Invocation:
    """What to run. `note` is for the log, where the command was understood differently from what it says."""

    kind: str
    target: str
    arguments: Tuple[str, ...] = ()
    unbuffered: bool = False
    note: str = ""


def parse(command: Sequence[str], interpreter: str) -> Invocation:
    """Understand `command`; `interpreter` is the running Python's own path."""
    name = command[0]
    if Path(name).name == "torchrun":
        return _torchrun(command[1:])
    if not _PYTHON.match(Path(name).name):
        return Invocation(EXECUTE, name, tuple(command))
    if os.sep not in name:
        name = interpreter
    if name != interpreter:
        return Invocation(EXECUTE, name, tuple(command))
    return _python(command, interpreter)


def _python(command: Sequence[str], interpreter: str) -> Invocation:
    """`python [-u] script ...` and `python [-u] -m module ...`; any other option needs a real new interpreter."""
    rest = list(command[1:])
    unbuffered = rest[:1] == ["-u"]
    if unbuffered:
        rest = rest[1:]
    if len(rest) > 1 and rest[0] == "-m":
        if rest[1] in _TORCHRUN_MODULES:
            return _torchrun(rest[2:])
        return Invocation(MODULE, rest[1], tuple(rest[2:]), unbuffered)
    if not rest or rest[0].startswith("-"):
        return Invocation(EXECUTE, interpreter, (interpreter, *command[1:]))
    return Invocation(SCRIPT, rest[0], tuple(rest[1:]), unbuffered)


def _torchrun(options: Sequence[str]) -> Invocation:
    """The script that torchrun would start. Its own options say who and where: the agent knows better."""
    rest, flags = list(options), set()
    while rest and rest[0].startswith("-"):
        option = rest.pop(0).replace("_", "-") if rest[0].startswith("--") else rest.pop(0)
        flags.add(option)
        if "=" not in option and option not in _TORCHRUN_FLAGS and rest:
            rest.pop(0)
    note = "torchrun is not needed here: its own options are ignored, the agent does its work"
    if not rest:
        return Invocation(SCRIPT, "", (), note=note)
    if "--no-python" in flags:
        return Invocation(EXECUTE, rest[0], tuple(rest), note=note)
    kind = MODULE if flags & {"-m", "--module"} else SCRIPT
    return Invocation(kind, rest[0], tuple(rest[1:]), note=note)
