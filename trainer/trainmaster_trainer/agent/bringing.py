"""Bring code and packages into a replica's scratch folder, as a process of its own that says why where it cannot.

It ends with 0, with `EXIT_BAD_CONFIGURATION` where another try would change nothing, or with `EXIT_UNAVAILABLE`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Callable, List, NoReturn, TypeVar

from trainmaster.wire import archives, bundle, codec, git_fetch, names
from trainmaster.wire.files import delete_folder
from trainmaster.wire.sources import Secrets, SourceUnavailableError
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent import installing, process
from trainmaster_trainer.agent.bundled import CODE_FOLDER, PACKAGES_FOLDER

_T = TypeVar("_T")
_PAUSES = (1.0, 4.0)  # seconds before the second and the third try; the operator's own tries come after longer ones


def main() -> NoReturn:
    """Bring what the plan in the environment names, and end."""
    process.die_with_parent(os.getppid())
    plan = codec.decode(TrainingPlan, os.environ[names.ENV_TRAINING])
    scratch, secrets = Path(os.environ[names.ENV_SCRATCH]), Secrets.taken_from(os.environ)
    field = "spec.training.code"
    try:
        folder = _code(plan, scratch / CODE_FOLDER, secrets)
        field = "spec.training.packages"
        if plan.packages:
            top = folder / (plan.working_directory or "")
            _patiently(lambda: installing.install(plan.packages, scratch / PACKAGES_FOLDER, top))  # type: ignore[arg-type]
    except SourceUnavailableError as error:
        _end(names.EXIT_UNAVAILABLE, f"{field}: {error}")
    except (bundle.BundleError, OSError) as error:
        _end(names.EXIT_BAD_CONFIGURATION, f"{field}: {error}")
    sys.exit(0)


def _end(code: int, why: str) -> NoReturn:
    sys.stderr.write(f"trainmaster agent: {why}\n")
    sys.stderr.flush()
    sys.exit(code)


def _code(plan: TrainingPlan, folder: Path, secrets: Secrets) -> Path:
    """Return the folder of the code: it is unpacked there, or was mounted, or is where the plan says."""
    fetch: Callable[[], List[bundle.BundleEntry]]
    if plan.code_url:
        url = plan.code_url
        fetch = lambda: archives.fetch(url, secrets)  # noqa: E731
    elif plan.code_git:
        git = plan.code_git
        fetch = lambda: git_fetch.fetch(git, secrets)  # noqa: E731
    else:
        return Path(os.environ[names.ENV_CODE] or ".")
    entries = _patiently(fetch)
    delete_folder(folder)
    bundle.write(entries, folder)
    return folder


def _patiently(attempt: Callable[[], _T]) -> _T:
    for pause in _PAUSES:
        try:
            return attempt()
        except SourceUnavailableError as error:
            sys.stderr.write(f"trainmaster agent: {error}; it is tried again in {pause:.0f} s\n")
            time.sleep(pause)
    return attempt()
