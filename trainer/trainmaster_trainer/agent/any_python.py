"""Have every Python that a rank's command starts count optimizer steps, and find Trainmaster's packages.

The command may be a shell, a starter (`uv run`), the Python of another environment; a script may start processes by
torch.multiprocessing. What they have in common is a `sitecustomize` on PYTHONPATH (`python_start/sitecustomize.py`), as
ddtrace and OpenTelemetry begin. See docs/decisions/0223-steps-in-any-python.md.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import MutableMapping

from trainmaster.wire import names

from trainmaster_trainer.agent.own_program import package_roots

START_FOLDER = str(Path(__file__).absolute().with_name("python_start"))


def prepare(environment: MutableMapping[str, str], ranks: int) -> None:
    """Set in a rank's environment what they need; `ranks` are to train one model together."""
    if Path(START_FOLDER, "sitecustomize.py").is_file():
        text = users_path(environment.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = f"{START_FOLDER}{os.pathsep}{text}" if text else START_FOLDER
        environment[names.ENV_PACKAGES] = os.pathsep.join(dict.fromkeys(package_roots()))
        environment[names.ENV_PLACE] = f"{environment.get('RANK', '0')}/{ranks}"


def users_path(text: str) -> str:
    """Return a PYTHONPATH as the user has set it."""
    return os.pathsep.join(path for path in text.split(os.pathsep) if path != START_FOLDER)
