"""Run `trainmaster init [DIR]`: write a job.yaml and a train.py that work as they are. It asks nothing."""

import argparse
import re
import shlex
from pathlib import Path

from trainmaster.api.problem import reason
from trainmaster.cli import starters
from trainmaster.cli.cluster import EXIT_GOOD, EXIT_INVALID
from trainmaster.cli.terminal import complain, tell

_LONGEST_NAME = 40
_FALLBACK = "training"


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    folder = Path(options.folder)
    name = options.name or name_of(folder.resolve().name)
    if name_of(name) != name:
        complain(f"trainmaster init: --name {name}: write lower-case letters, digits and -, as {name_of(name)}")
        return EXIT_INVALID
    job, program = (starters.SCRIPT_JOB, starters.SCRIPT) if options.script else (starters.TASK_JOB, starters.TASK)
    files = {
        folder / "job.yaml": job.format(name=name, storage=starters.STORAGE),
        folder / "train.py": program,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(files)
    except FileExistsError as error:
        complain(f"trainmaster init: {error.filename} is there already; name another folder: trainmaster init DIR")
        return EXIT_INVALID
    except OSError as error:
        complain(f"trainmaster init: {error.filename or folder}: {reason(error)}")
        return EXIT_INVALID
    where = shlex.quote(str(folder / "job.yaml"))
    tell([f"{path}" for path in files])
    tell([f"Train it here: trainmaster run {where}", f"On a cluster: trainmaster submit {where} --follow"])
    return EXIT_GOOD


def name_of(text: str) -> str:
    """Return a name that a job may have, as like to the text as can be."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")[:_LONGEST_NAME].rstrip("-")
    return plain or _FALLBACK


def _write(files: dict[Path, str]) -> None:
    """Write all of the files, or none. What is there is never written over.

    Raises:
        OSError: one of them is there, or cannot be written.
    """
    made: list[Path] = []
    try:
        for path, text in files.items():
            with path.open("x") as file:
                made.append(path)
                file.write(text)
    except BaseException:
        for path in made:
            path.unlink()
        raise
