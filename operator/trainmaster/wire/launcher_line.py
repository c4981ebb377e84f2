"""Pure: which launcher a command line begins with, whatever is made of the words after it.

Asked by who carries a launcher's line out or refuses it (`torchrun`, `launchers`, the agent's `command`) and by who
looks for launchers behind a shell (`nested_launch`), so that none of them sees one that another overlooks.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple, Optional, Sequence, Tuple

_PROGRAMS = {
    "torchrun": "torchrun",
    "deepspeed": "deepspeed",
    "accelerate launch": "accelerate",
    "accelerate-launch": "accelerate",
}
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "deepspeed.launcher.runner": "deepspeed",
    "accelerate.commands.launch": "accelerate",
}
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
# Options of Python: those that may stand together behind one dash, and those that have a value.
_LETTERS = "bBdEIOPqRsSuv"
_VALUED = ("W", "X")


class LauncherLine(NamedTuple):
    """LauncherLine is a command line that starts a launcher."""

    launcher: str  # torchrun, deepspeed or accelerate
    called: str  # as the line calls it, without its folder: `accelerate launch`, `python -m torch.distributed.run`
    words: Tuple[str, ...]  # after that: its options, and the program that it starts


def read(command: Sequence[str]) -> Optional[LauncherLine]:
    """Return what the words of a command say of a launcher; None where it starts another program."""
    base, rest = PurePosixPath(command[0]).name, tuple(command[1:])
    if base in _PROGRAMS:
        return LauncherLine(_PROGRAMS[base], base, rest)
    pair = f"{base} {rest[0]}" if rest else ""
    if pair in _PROGRAMS:
        return LauncherLine(_PROGRAMS[pair], pair, rest[1:])
    after = rest[python_options(rest) :] if is_python(base) else ()
    module = after[1] if len(after) > 1 and after[0] == "-m" else ""
    return LauncherLine(_MODULES[module], f"python -m {module}", after[2:]) if module in _MODULES else None


def is_python(word: str) -> bool:
    """Return whether a program is Python by its name, with or without a folder."""
    return _PYTHON.fullmatch(PurePosixPath(word).name) is not None


def python_options(words: Sequence[str]) -> int:
    """Return how many of the words after `python` are options that a script or a module may follow."""
    count = 0
    while count < len(words):
        word = words[count]
        if word[:1] != "-":
            break
        if word[1:] in _VALUED or word == "--check-hash-based-pycs":
            count += 2
        elif word[1:2] in _VALUED or (len(word) > 1 and all(letter in _LETTERS for letter in word[1:])):
            count += 1
        else:
            break
    return count
