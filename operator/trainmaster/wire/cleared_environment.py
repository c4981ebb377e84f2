"""Pure: whether a command keeps the rank's environment, by which steps are counted, from the programs that it starts.

`python -E` and `-I` obey no PYTHONPATH, `env -i` and `sudo` hand no variable on (docs/decisions/0223). In doubt nothing
is told.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Iterator, Sequence

from trainmaster.wire import launcher_line
from trainmaster.wire.nested_launch import SHELLS, Read, simple_commands

_IGNORES = re.compile(r"-(?![WX])[a-zA-Z]*[EI]")
_CLEARS = {
    "env": re.compile(r"-|-[a-z]*i[a-z]*|--ignore-environment"),
    "sudo": re.compile(r"(?!-E$|--preserve-env).*", re.DOTALL),
}
_DEPTH = 3  # of shells that start shells


def not_counted(command: Sequence[str], read: Read = lambda _: "") -> str:
    """Return why none of the programs' steps can be counted, with the cure; empty where some can, or in doubt.

    `read` gives the text of a shell's script.
    """
    found = [*_obstacles(command, read, _DEPTH)]
    if not found or not all(found):
        return ""
    return (
        f"steps are not counted, as {found[-1]} keeps what Trainmaster sets in the environment from the program: leave "
        "that out, or let the program print its steps (spec.training.progress)"
    )


def _obstacles(command: Sequence[str], read: Read, depth: int) -> Iterator[str]:
    """Yield for each Python that is started what keeps the environment from it, or an empty text."""
    clears = ""
    for place, word in enumerate(command):
        name, rest = PurePosixPath(word).name, command[place + 1 :]
        if name in _CLEARS and rest and _CLEARS[name].fullmatch(rest[0]):
            clears = f"`{name} {rest[0]}`" if name == "env" else "`sudo`"
        # A launcher's programs obey the environment, if it comes to them; so may any script that is named.
        if launcher_line.read(command[place:]) or (name.endswith((".py", ".sh")) and not clears):
            yield clears
            return
        if launcher_line.is_python(word):
            options = rest[: launcher_line.python_options(rest)]
            ignores = next((one for one in options if _IGNORES.match(one)), "")
            yield clears or (f"`{name} {ignores}`" if ignores else "")
            return
        if name in SHELLS and depth:
            at = next((at for at, one in enumerate(rest) if not one.startswith(("-", "+"))), None)
            if at is None:
                return
            text = rest[at] if any(re.match(r"-[a-z]*c", one) for one in rest[:at]) else read(rest[at])
            for line in text.replace("\\\n", " ").splitlines():
                for words in simple_commands(line):
                    yield from ((clears or one) for one in _obstacles(words, read, depth - 1))
            return
