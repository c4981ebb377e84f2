"""Have every Python that a rank's command starts count optimizer steps, and find Trainmaster's packages.

The command may be a shell, a starter (`uv run`), the Python of another environment; a script may start processes by
torch.multiprocessing. What they have in common is a `sitecustomize` on PYTHONPATH (`python_start/sitecustomize.py`), as
ddtrace and OpenTelemetry begin. See docs/decisions/0223-steps-in-any-python.md.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import MutableMapping

from trainmaster.wire import names, script_imports

from trainmaster_trainer.agent.own_program import package_roots

START_FOLDER = str(Path(__file__).absolute().with_name("python_start"))


def prepare(environment: MutableMapping[str, str], ranks: int) -> None:
    """Set in a rank's environment what they need; `ranks` are to train one model together."""
    if Path(START_FOLDER, "sitecustomize.py").is_file():
        text = users_path(environment.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = f"{START_FOLDER}{os.pathsep}{text}" if text else START_FOLDER
        environment[names.ENV_PACKAGES] = os.pathsep.join(dict.fromkeys(package_roots()))
        environment[names.ENV_PLACE] = f"{environment.get('RANK', '0')}/{ranks}"


def put_first_on_path(environment: MutableMapping[str, str]) -> None:
    """Have a shell, or `nice` and the like, find as `python` what a command means by it, as `command.python_of` does.

    That is our own where PATH finds none, or one without any framework, as the system's mostly is.
    """
    path = environment.get("PATH", os.defpath)
    found = shutil.which("python", path=path)
    ours = os.path.dirname(sys.executable)  # noqa: PTH120 an environment's own path, not what its link leads to
    if found is None or (os.path.dirname(found) != ours and not _has_framework(found, environment)):  # noqa: PTH120
        environment["PATH"] = f"{ours}{os.pathsep}{path}"


def _has_framework(python: str, environment: MutableMapping[str, str]) -> bool:
    """Return whether a Python could import one of the frameworks; it is asked, as a shim hides where it lies."""
    program = f"import importlib.util as u, sys; sys.exit(not any(map(u.find_spec, {sorted(script_imports.KNOWN)})))"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        words = (python, "-c", program)
        asked = subprocess.run(words, check=False, env={**environment}, capture_output=True, timeout=60)
        return asked.returncode == 0
    return False


def users_path(text: str) -> str:
    """Return a PYTHONPATH as the user has set it."""
    return os.pathsep.join(path for path in text.split(os.pathsep) if path != START_FOLDER)
