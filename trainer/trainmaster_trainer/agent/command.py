"""Read what a TrainingPlan's command line means for a process that is Python already. Pure.

`python train.py` needs no new interpreter, and torchrun's work is done already, by the agent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from trainmaster.wire import launchers, torchrun

from trainmaster_trainer.agent import new_interpreter

SCRIPT = "script"  # a file to run as __main__
MODULE = "module"  # as `python -m` does
EXECUTE = "execute"  # replace the process

_PYTHON = re.compile(r"python(3(\.\d+)?)?$")
_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_NOTE = "{} is not needed here: the agent does its work"
_ACCELERATE = Path(__file__).with_name("accelerate_launch.py")
# Options of Python: those that may stand together behind one dash, and those that have a value.
_LETTERS = "bBdEIOPqRsSuv"
_VALUED = ("W", "X")


@dataclass(frozen=True)
class Invocation:
    """Invocation is what to run. `note` is for the log, where the command is not carried out as it stands.

    `options` of Python need an interpreter that is started with them. `launch`: what torchrun was to do.
    """

    kind: str
    target: str
    arguments: Tuple[str, ...] = ()
    unbuffered: bool = False
    note: str = ""
    options: Tuple[str, ...] = ()
    launch: Optional[torchrun.Launch] = None


def parse(command: Sequence[str], interpreter: str) -> Invocation:
    """Return what `command` is to run; `interpreter` is the running Python's own path.

    Raises:
        torchrun.CommandError: it is one of torchrun's that cannot be carried out.
    """
    name = command[0]
    base = Path(name).name
    if base == "torchrun":
        return _torchrun(command[1:], legacy=False)
    launch = launchers.launched(command)
    if launch is not None and launch.launcher != "torchrun":
        return _as_python(launch, command[0], interpreter)
    if not _PYTHON.match(base) or ("." in base and base != _VERSION and os.sep not in name):
        return Invocation(EXECUTE, name, tuple(command))
    if os.sep not in name:
        name = interpreter
    if name != interpreter:
        return Invocation(EXECUTE, name, tuple(command))
    return _python(command, interpreter)


def _python(command: Sequence[str], interpreter: str) -> Invocation:
    """Read `python OPTIONS script ...` and `python OPTIONS -m module ...`; all else is for a real new interpreter."""
    whole = Invocation(EXECUTE, interpreter, (interpreter, *command[1:]))
    rest = list(command[1:])
    options: List[str] = []
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-"):
        count = _length(rest)
        if not count:
            return whole
        options += rest[:count]
        rest = rest[count:]
    unbuffered = any(re.match(r"-[a-zA-Z]*u", one) and one[1:2] not in _VALUED for one in options)
    options = [one for one in options if one != "-u"]
    if rest[:1] == ["-m"] and len(rest) > 1:
        if rest[1] in torchrun.LAUNCHERS:
            found = _torchrun(rest[2:], legacy=torchrun.LAUNCHERS[rest[1]])
            return found if found.kind == EXECUTE else replace(found, options=tuple(options))
        return Invocation(MODULE, rest[1], tuple(rest[2:]), unbuffered, options=tuple(options))
    if not rest or rest[0] in ("-m", "-") or rest[0].endswith(".pyc"):
        return whole
    return Invocation(SCRIPT, rest[0], tuple(rest[1:]), unbuffered, options=tuple(options))


def _length(rest: Sequence[str]) -> int:
    """Return the number of words of the first option; 0: it is none that a script or module may follow."""
    word = rest[0]
    if word[1:2] in _VALUED:
        return 1 if len(word) > 2 else 2  # noqa: PLR2004 the dash and the letter
    if word == "--check-hash-based-pycs":
        return 2
    return 1 if len(word) > 1 and all(letter in _LETTERS for letter in word[1:]) else 0


def _torchrun(words: Sequence[str], legacy: bool) -> Invocation:
    """Return the program that torchrun would start, with `python -u`."""
    launch = torchrun.parse(words, legacy)
    note = _note(launch)
    if not launch.python:
        arguments = (launch.program, *launch.arguments)
        return Invocation(EXECUTE, launch.program, arguments, note=note, launch=launch)
    kind = MODULE if launch.module else SCRIPT
    return Invocation(kind, launch.program, launch.arguments, True, note, launch=launch)


def _note(launch: torchrun.Launch) -> str:
    counted = "; restarts are counted by spec.failurePolicy.maxRestarts" if launch.restarts else ""
    return _NOTE.format(launch.launcher) + counted


def _as_python(launch: torchrun.Launch, word: str, interpreter: str) -> Invocation:
    """Return what deepspeed or accelerate would start, by the Python that the launcher belongs to."""
    python = python_of(word, interpreter)
    note = _note(launch)
    if launch.words:
        again = new_interpreter.command((), None) if python == interpreter else []
        words = (python, str(_ACCELERATE), json.dumps(again), *launch.words)
        return Invocation(EXECUTE, python, words, note=note, launch=launch)
    if not launch.python:
        return Invocation(EXECUTE, launch.program, (launch.program, *launch.arguments), note=note, launch=launch)
    if python != interpreter:
        words = (python, "-u", *(["-m"] if launch.module else []), launch.program)
        return Invocation(EXECUTE, python, (*words, *launch.arguments), note=note, launch=launch)
    kind = MODULE if launch.module else SCRIPT
    return Invocation(kind, launch.program, launch.arguments, True, note, launch=launch)


def python_of(word: str, interpreter: str) -> str:
    """Return the Python of the environment that a launcher is installed in; ours where it is not found."""
    if _PYTHON.match(Path(word).name):
        return word if os.sep in word else interpreter
    found = shutil.which(word)
    beside = Path(found).with_name("python") if found else None
    return str(beside) if beside is not None and beside.exists() else interpreter
