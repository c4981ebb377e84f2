"""A Python with a package `heavy` among those that are installed."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

from trainmaster.wire import names

HEAVY = """
import os
PID, VARIABLE = os.getpid(), os.environ.get("HEAVY")
from heavy import a0
"""
# Each imports the next one: 25 are worth learning.
MODULES = {f"a{number}": f"from heavy import a{number + 1}\n" for number in range(24)}


class Installed:
    """A Python with the package `heavy` among those that are installed."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", symlinks=True)
        self.python = str(folder / "venv" / "bin" / "python")
        (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
        ours = next(path for path in sys.path if path.endswith("site-packages"))
        (site / "rest.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
        self.folder = folder
        self.package = site / "heavy"
        self.package.mkdir()
        (self.package / "__init__.py").write_text(HEAVY)
        for name, text in {**MODULES, "a24": "", "never": "raise SystemExit"}.items():
            (self.package / f"{name}.py").write_text(text)
        (folder / "torch.py").write_text("raise ModuleNotFoundError('no torch in this image')")
        self.variables = {names.ENV_WARM_SOCKET: "", "PYTHONPATH": str(folder)}

    def notes(self, text: str) -> list[list[object]]:
        """What is noted while a program runs that does this, but for what Python itself brings along."""
        path = self.package.parent / "notes"
        path.unlink(missing_ok=True)
        begin = f"from trainmaster_trainer.agent import imports; imports.note({str(path)!r}, 'mine')\n"
        command = [self.python, "-c", begin + text + "\nimport end_of_it"]  # which is not there, but one more question
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL, cwd=self.folder)
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if isinstance(line[0], dict) or line[0].startswith(("heavy", "mine"))]

    def repeat(self, *lines: list[object]) -> str:
        """What is against importing these in another process; nothing: they are imported."""
        text = (
            "import sys, json; from trainmaster_trainer.agent import imports\n"
            "try: imports.repeat(sys.argv[1:], ['RANK'])\n"
            "except imports.ChangedError as error: print(error)"
        )
        command = [self.python, "-c", text, *map(json.dumps, lines)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
