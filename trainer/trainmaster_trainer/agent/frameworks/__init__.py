"""Prepare a rank for a script of another framework than torch: its variables, files, companions and command.

An adapter is one file here, named in the table of `wire/frameworks.py`, with one pure function `instruct(position)`. It
answers in the framework's own words: who takes part in the attempt, where, and which of them this process is.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Mapping, Sequence

from trainmaster.wire import codec, names
from trainmaster.wire.frameworks import FRAMEWORKS
from trainmaster.wire.messages import Roster
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent import companions
from trainmaster_trainer.agent.frameworks.position import Instructions, Position, position_of
from trainmaster_trainer.agent.main_module import BadConfigurationError


def prepare(plan: TrainingPlan) -> Sequence[str]:
    """Do in this rank's process what its framework needs before the script; return the command to run.

    Raises:
        BadConfigurationError: the framework is not in the table of this image's Trainmaster.
        companions.CompanionError: what the others need to begin does not come up.
    """
    if plan.framework is None:
        return plan.command
    roster = codec.decode(Roster, Path(os.environ[names.ENV_ROSTER]).read_bytes())
    position = position_of(plan, roster, os.environ)
    told = instructions(plan.framework, position)
    os.environ.update(told.variables)
    for name, value in told.defaults.items():
        os.environ.setdefault(name, value)
    _write(Path(position.folder), told.files)
    for folder in told.temporary:
        Path(folder).mkdir(mode=0o700, exist_ok=True)  # on one machine another rank may have made it
    if told.launches:
        companions.end_session(told.temporary)
    for companion in told.companions:
        companions.start(companion, os.environ.get(names.ENV_ERROR_FILE))
    if told.awaits:
        first = position.first
        companions.wait_for(told.awaits, first.address, first.port)
    return told.command or plan.command


def instructions(framework: str, position: Position) -> Instructions:
    """Return what the adapter of this framework says."""
    traits = FRAMEWORKS.get(framework)
    if traits is None or traits.adapter is None:
        raise BadConfigurationError(
            f"training.framework: the Trainmaster in this image does not know {framework}; use an image of the "
            "operator's version"
        )
    adapter = importlib.import_module(f"{__name__}.{traits.adapter}")
    told: Instructions = adapter.instruct(position)
    return told


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # before it has content: a key may be in it
        path.write_text(text, encoding="utf-8")
