"""Put each bug of the table into a copy of this checkout and run the tests that must see it.

`make mutants`; `python -m tests.mutants NAME...` for some of them. It ends with 1 if one was not seen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".cluster", "__pycache__", ".*_cache", "build", "dist")
FOUND_A_FAILURE = 1  # pytest's exit code


def main(names: list[str]) -> int:
    unseen = []
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(ROOT, Path(folder) / "copy", ignore=LEFT_OUT, symlinks=True)
        for mutant in (one for one in MUTANTS if not names or one.name in names):
            seen = is_seen(mutant, copy)
            sys.stdout.write(f"{'seen    ' if seen else 'NOT SEEN'} {mutant.name}\n")
            sys.stdout.flush()
            unseen += [] if seen else [mutant.name]
    sys.stdout.write(f"{len(unseen)} bugs were not seen: {', '.join(unseen)}\n" if unseen else "All bugs were seen.\n")
    return 1 if unseen else 0


def is_seen(mutant: Mutant, copy: Path) -> bool:
    """Return whether one of its tests fails with it."""
    path = copy / mutant.file
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    files, _, options = mutant.tests.partition(" -k ")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=300"]
    command += [f"tests/{name}" for name in files.split()] + (["-k", options] if options else [])
    packages = os.pathsep.join(str(copy / name) for name in ("operator", "trainer", "."))
    variables = {**os.environ, "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}  # no bytecode of the bug before
    try:
        done = subprocess.run(
            command, cwd=copy, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    finally:
        path.write_text(text)
    return done.returncode == FOUND_A_FAILURE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
