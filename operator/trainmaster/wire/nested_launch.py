"""Find a launcher that a command starts by way of a shell or another program, so that no agent can do its work.

Of several ranks each would be one launcher more, with a group of its own: all would train the same model, each its own
copy, and end with 0. One that names its machines may mean to join the others, and is let be.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import Callable, Iterator, List, Sequence

from trainmaster.wire import launcher_line
from trainmaster.wire.torchrun import CommandError

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
# Programs that start the one that their arguments name.
_STARTERS = frozenset(
    {
        *("env", "exec", "time", "nohup", "nice", "ionice", "numactl", "taskset", "timeout", "setsid", "stdbuf"),
        *("uv", "conda", "mamba", "micromamba", "poetry", "pipenv", "pixi", "nsys"),
    }
)
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "{", "!"})
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_BREAK = re.compile(r"[;&|()]+")
# Options that say on how many machines it runs, or where that stands.
_MACHINES = re.compile(r"--?(nnodes|num[-_]machines|num[-_]nodes|config[-_]file|hostfile|H)(=.*)?")
_DEPTH = 3  # of scripts that call scripts

Read = Callable[[str], str]  # the text of a script; empty where it is none, or not to be had


def refuse_nested(command: Sequence[str], ranks: int, read: Read = lambda _: "") -> None:
    """Refuse a command that would start a whole group in each of several ranks, or begins as only a shell's may.

    Raises:
        CommandError: it does.
    """
    name = PurePosixPath(command[0]).name
    if _VARIABLE.match(command[0]):
        raise CommandError(f"training.command: {command[0]} is no program: set variables in spec.workers.env")
    found = next(_inside(command, read, _DEPTH), None) if ranks > 1 else None
    if found:
        raise CommandError(
            f"training.command: {name} starts {found} in each of the {ranks} ranks, which would train a model each, "
            f"apart from one another: let the command begin with {found} (a folder to begin in is "
            "spec.training.workingDirectory, variables are spec.workers.env), or set spec.workers.replicas to 1"
        )


def _inside(command: Sequence[str], read: Read, depth: int) -> Iterator[str]:
    """Yield the launchers that start groups of their own below a command that is none itself."""
    base = PurePosixPath(command[0]).name
    if base in _STARTERS:
        yield from _begun(command[1:], read, depth)
    elif base in SHELLS:
        at = next((place for place, word in enumerate(command) if place and not word.startswith(("-", "+"))), 0)
        is_text = at > 0 and any(re.match(r"-[a-z]*c", word) for word in command[1:at])
        yield from _of_text(command[at] if is_text else read(command[at]) if at else "", read, depth - 1)
    elif depth > 0:
        yield from _of_text(read(command[0]), read, depth - 1)


def _of_text(text: str, read: Read, depth: int) -> Iterator[str]:
    """Yield those that the lines of a shell script start."""
    for line in text.replace("\\\n", " ").splitlines() if depth >= 0 else ():
        for words in simple_commands(line):
            yield from _of_words(words, read, depth)


def _of_words(words: Sequence[str], read: Read, depth: int) -> Iterator[str]:
    """Yield the launcher that a simple command is, or those that it starts."""
    own = launcher_line.read(words)
    if own is None:
        yield from _inside(words, read, depth)
    elif _is_alone(words):
        yield own.called


def simple_commands(line: str) -> List[List[str]]:
    """Return the simple commands of a line; none where its quotes end on another line."""
    words = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    words.whitespace_split = True
    found: List[List[str]] = [[]]
    try:
        for word in words:
            if _BREAK.fullmatch(word):
                found.append([])
            elif found[-1] or not (word in _KEYWORDS or _VARIABLE.match(word)):
                found[-1].append(word)
    except ValueError:
        return []
    return [one for one in found if one]


def _begun(words: Sequence[str], read: Read, depth: int) -> Iterator[str]:
    """Yield those that a program starts which stands somewhere among the words after a starter and its options."""
    for place, word in enumerate(words):
        if PurePosixPath(word).name in SHELLS or launcher_line.read(words[place:]):
            yield from _of_words(words[place:], read, depth)
            return


def _is_alone(words: Sequence[str]) -> bool:
    """Return whether a launcher is plainly to start processes on its own machine only."""
    for place, word in enumerate(words):
        if _MACHINES.fullmatch(word):
            value = word.partition("=")[2] or "".join(words[place + 1 : place + 2])
            return value == "1"
    return True
