"""Refuse a script of several ranks that is plainly written for another framework, or starts a group in each of them.

Each rank would train a model of its own, and end with 0 (docs/decisions/0202). One that starts processes of its own in
each is told so, and may go on (docs/decisions/0223); so is one whose steps cannot be counted.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import List, Optional, Sequence

from trainmaster.wire import launcher_line, torchrun
from trainmaster.wire.cleared_environment import not_counted
from trainmaster.wire.frameworks import FRAMEWORKS, TORCH
from trainmaster.wire.nested_launch import refuse_nested
from trainmaster.wire.script_imports import other_frameworks
from trainmaster.wire.spawning import EACH_STARTS, spawns_always

from trainmaster_trainer.agent import command, main_module, optimizer_steps, rank_errors
from trainmaster_trainer.agent.main_module import BadConfigurationError

_SHEBANG = re.compile(r"#! ?/\S*(/env )?\S*\b(ba|da|z|k)?sh\b")
_MOST_BYTES = 100_000
_IN_VAIN = re.compile(r"timed out|timeout", re.IGNORECASE)
_spawning: List[int] = []  # the number of ranks, where each starts processes of its own


def refuse(words: Sequence[str], framework: Optional[str], ranks: int) -> None:
    """Look into the script that these words of a command run in the present folder, by whatever Python.

    Raises:
        BadConfigurationError: it imports other frameworks, and nowhere its own.
        torchrun.CommandError: a launcher in a shell's script would start a whole group in each rank.
    """
    try:
        # Read as that Python itself would read it: what matters is the script, whichever Python runs it.
        invocation = command.parse(words, command.python_of(words[0], words[0]))
    except torchrun.CommandError:  # said by who runs it
        return
    if invocation.kind == command.EXECUTE and invocation.launch is None:
        refuse_nested(words, ranks, _shell_script)
    if ranks == 1 or invocation.kind == command.EXECUTE:
        return
    entries, folders = main_module.entries(invocation, ""), main_module.folders(invocation, "")
    if framework is None:
        _tell_of_spawned(entries, ranks)
    found, named = other_frameworks(entries, folders, framework), framework or TORCH
    if found:
        raise BadConfigurationError(
            f"training.framework: {invocation.target} imports {' and '.join(found)} and not {named}, so its {ranks} "
            f"processes would not train one model together; set it to {found[0]}, or import "
            f"{FRAMEWORKS[named].imports[0]} in the script if it does train by {named}"
        )


def tell_of_uncounted(words: Sequence[str]) -> None:
    """Say where these words of a command keep the rank's environment from the programs that they start."""
    why = "" if launcher_line.is_python(words[0]) else not_counted(words, _shell_script)
    if why:
        rank_errors.say(f"trainmaster: {why}")


def _tell_of_spawned(entries: Sequence[Path], ranks: int) -> None:
    """Say where a script starts processes in each of the ranks: they may wait for one another and take no step."""
    for path in entries:
        with contextlib.suppress(OSError, KeyError):
            text = path.read_bytes().decode(errors="replace")
            if "multiprocessing" in text and spawns_always(text):
                optimizer_steps.say_apart(EACH_STARTS.format(ranks))
                _spawning.append(ranks)


def explained(error: BaseException) -> BaseException:
    """Return the error that stands for one of a spawned process that has waited in vain for others of its group."""
    if not _spawning or type(error).__name__ != "ProcessRaisedException" or "/torch/distributed/" not in str(error):
        return error
    # Lines of source code are indented in it, and may have such words in any case.
    found = [line for line in str(error).splitlines() if line[:1].strip() and _IN_VAIN.search(line)]
    if not found:
        return error
    return BadConfigurationError(
        f"training.command: {EACH_STARTS.format(_spawning[0])}. One has ended with: {found[-1]}"
    )


def _shell_script(name: str) -> str:
    """Return the text of a shell script; empty where it is none, or cannot be read."""
    try:
        with Path(shutil.which(name) or name).open("rb") as file:
            text = file.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return ""
    return text if "\0" not in text and (name.endswith(".sh") or _SHEBANG.match(text)) else ""
