"""Refuse a script of several ranks that is plainly written for another framework than its job names.

Each rank would train a model of its own, and end with 0 (docs/decisions/0202).
"""

from __future__ import annotations

from typing import Optional, Sequence

from trainmaster.wire import torchrun
from trainmaster.wire.frameworks import FRAMEWORKS, TORCH
from trainmaster.wire.script_imports import other_frameworks

from trainmaster_trainer.agent import command, main_module
from trainmaster_trainer.agent.main_module import BadConfigurationError


def refuse(words: Sequence[str], framework: Optional[str], ranks: int) -> None:
    """Look into the script that these words of a command run in the present folder, by whatever Python.

    Raises:
        BadConfigurationError: it imports other frameworks, and nowhere its own.
    """
    try:
        invocation = command.parse(words, words[0])
    except torchrun.CommandError:  # said by who runs it
        return
    if ranks == 1 or invocation.kind == command.EXECUTE:
        return
    entries, folders = main_module.entries(invocation, ""), main_module.folders(invocation, "")
    found, named = other_frameworks(entries, folders, framework), framework or TORCH
    if found:
        raise BadConfigurationError(
            f"training.framework: {invocation.target} imports {' and '.join(found)} and not {named}, so its {ranks} "
            f"processes would not train one model together; set it to {found[0]}, or import "
            f"{FRAMEWORKS[named].imports[0]} in the script if it does train by {named}"
        )
