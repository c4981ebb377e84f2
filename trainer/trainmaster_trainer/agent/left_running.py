"""Find the programs that a rank's shell or launcher has left running as it ended well.

`python train.py &` in a shell, and `setsid python train.py`, end at once with exit code 0 while the training has only
begun. Ranks that are Python themselves are not looked at: what they leave is a helper more often than a training.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Iterator, List

from trainmaster.wire import names

from trainmaster_trainer.agent import process

_MOST_CHARACTERS = 80  # of a command line that is shown
_PYTHON = re.compile(r"tm-rank-|python|pypy")
# Python's own: resource trackers, fork servers and spawned workers.
_HELPER = re.compile(rb"\bfrom (multiprocessing|joblib)\b")


def command_lines(ended: int, progress_file: str) -> List[str]:
    """Return the command lines of what process `ended`, which is not reaped yet, has left running.

    It is known by the environment of its rank, in which `progress_file` has a name that no other rank has. The list is
    empty where the ended process was a Python.
    """
    with contextlib.suppress(OSError):
        if progress_file and not _PYTHON.match(Path(f"/proc/{ended}/comm").read_text()):
            variable = f"{names.ENV_PROGRESS_FILE}={progress_file}\0".encode()
            return [line.decode(errors="replace")[:_MOST_CHARACTERS] for line in _lines_with(variable)]
    return []


def _lines_with(variable: bytes) -> Iterator[bytes]:
    """Yield the command lines of programs, Python's helpers left out, in whose environment this is.

    What they are is not asked: a process that has just been forked still is the shell that has ended.
    """
    for pid in process.all_pids():
        with contextlib.suppress(OSError):  # it has gone meanwhile, or is somebody else's
            if variable in process.read_memory(pid, "environ"):
                line = process.read_memory(pid, "cmdline").rstrip(b"\0").replace(b"\0", b" ")
                if line and not _HELPER.search(line):
                    yield line
