"""Read what a TrainingPlan's command line means for a process that is Python already. Pure.

`python train.py` needs no new interpreter, and torchrun's work is done already, by the agent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence, Tuple

from trainmaster.wire import launcher_line, launchers, script_imports, torchrun

from trainmaster_trainer.agent import new_interpreter

SCRIPT = "script"  # a file to run as __main__
MODULE = "module"  # as `python -m` does
EXECUTE = "execute"  # replace the process

_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_NOTE = "{} is not needed here: the agent does its work"
_ACCELERATE = Path(__file__).with_name("accelerate_launch.py")


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
    launch, python = launchers.launched(command), python_of(command[0], interpreter)
    if launch is not None and (launch.launcher != "torchrun" or python != interpreter):
        return _as_python(launch, python, interpreter)
    if not launcher_line.is_python(name):
        return Invocation(EXECUTE, name, tuple(command)) if launch is None else _started(launch)
    if python != interpreter:
        note = "" if python == name else f"{name} is {python}, of the environment that is active here"
        return Invocation(EXECUTE, python, (python, *command[1:]), note=note)
    return _python(command, interpreter, launch)


def _python(command: Sequence[str], interpreter: str, launch: Optional[torchrun.Launch]) -> Invocation:
    """Read `python OPTIONS script ...` and `python OPTIONS -m module ...`; all else is for a real new interpreter."""
    count = launcher_line.python_options(command[1:])
    options, rest = command[1 : count + 1], command[count + 1 :]
    unbuffered = any(re.match(r"-(?![WX])[a-zA-Z]*u", one) for one in options)
    options = tuple(one for one in options if one != "-u")
    if launch is not None:
        return _started(launch, options)
    if rest and rest[0] == "-m" and len(rest) > 1:
        return Invocation(MODULE, rest[1], tuple(rest[2:]), unbuffered, options=options)
    if not rest or rest[0].startswith("-") or rest[0].endswith(".pyc"):
        return Invocation(EXECUTE, interpreter, (interpreter, *command[1:]))
    return Invocation(SCRIPT, rest[0], tuple(rest[1:]), unbuffered, options=options)


def _started(launch: torchrun.Launch, options: Tuple[str, ...] = ()) -> Invocation:
    """Return the program that a launcher would start, with `python -u` and these options of Python."""
    if not launch.python:
        words = (launch.program, *launch.arguments)
        return Invocation(EXECUTE, launch.program, words, note=_note(launch), launch=launch)
    kind = MODULE if launch.module else SCRIPT
    return Invocation(kind, launch.program, launch.arguments, True, _note(launch), options, launch)


def _note(launch: torchrun.Launch) -> str:
    counted = "; restarts are counted by spec.failurePolicy.maxRestarts" if launch.restarts else ""
    return _NOTE.format(launch.launcher) + counted


def _as_python(launch: torchrun.Launch, python: str, interpreter: str) -> Invocation:
    """Return what a launcher would start, by the Python that it belongs to."""
    if launch.words:
        again = new_interpreter.command((), None) if python == interpreter else []
        words = (python, str(_ACCELERATE), json.dumps(again), *launch.words)
        return Invocation(EXECUTE, python, words, note=_note(launch), launch=launch)
    if launch.python and python != interpreter:
        words = (python, "-u", *(["-m"] if launch.module else []), launch.program, *launch.arguments)
        return Invocation(EXECUTE, python, words, note=_note(launch), launch=launch)
    return _started(launch)


def python_of(word: str, interpreter: str) -> str:
    """Return the Python that a command's first word means; `interpreter`, which is ours, where it means none.

    `python` is that of an active environment, and a launcher's the one beside it.
    """
    named = launcher_line.is_python(word)
    if named and (os.sep in word or ("." in word and word != _VERSION)):
        return word
    found = shutil.which(word)
    python = Path(found).with_name(word if named else "python") if found else Path(interpreter)
    is_ours = python.parent == Path(interpreter).parent or not python.exists()
    return interpreter if is_ours or (named and not _is_activated(python)) else str(python)


def _is_activated(python: Path) -> bool:
    """Return whether it is of an environment that somebody has activated to train in: one that has a framework.

    conda activates its base environment in every shell, which says nothing.
    """
    active = {os.environ.get("VIRTUAL_ENV")}
    if os.environ.get("CONDA_DEFAULT_ENV") != "base":
        active.add(os.environ.get("CONDA_PREFIX"))
    environment = python.parents[1]
    installed = environment.glob("lib/python3*/site-packages/*") if str(environment) in active else ()
    return any(path.stem in script_imports.KNOWN for path in installed)
