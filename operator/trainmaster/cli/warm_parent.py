"""Start a warm parent for all agents of one local run, so that torch is imported once, while the YAML is being read.

Standard library only: this runs before anything else is imported.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from trainmaster.local.scratch import Scratch
from trainmaster.wire import names

# What is quoted is JSON. A match in a comment costs a job of torch its warm start, and nothing else.
_OTHER_FRAMEWORK = re.compile(r"""(?:^|[\s{,])["']?framework["']?\s*:\s*["']?(?!Torch\b)[A-Z]\w+""")

_MOST_READ = 1 << 20


class LocalWarmParent:
    """Start the warm parent when created, and end it at the end of a `with`.

    If the environment names the socket of a warm parent that runs already, that one is used, and not ended.
    """

    def __init__(self, scratch: Scratch, job: str) -> None:
        given = os.environ.get(names.ENV_WARM_SOCKET)
        self.socket = Path(given) if given else scratch.path / "warm"
        self._process = None if given else _start(self.socket, scratch.warm_log, _needs_no_torch(job))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.send_signal(signal.SIGKILL)  # it has nothing to save; its ranks have ended, or end with it
            self._process.wait()


def _needs_no_torch(job: str) -> bool:
    """Return whether the job's file names another framework, so that importing torch would only hold up its script."""
    if not Path(job).is_file():
        return False  # a pipe can be read once only
    try:
        with Path(job).open(encoding="utf-8", errors="replace") as file:
            return _OTHER_FRAMEWORK.search(file.read(_MOST_READ)) is not None
    except OSError:
        return False  # who reads it for good says why


def _start(socket: Path, log: Path, bare: bool) -> "subprocess.Popen[bytes]":
    """Start the warm parent. Its output goes to `log`, because it may not write to our stdout.

    Raises:
        OSError: there can be no new process; it names the program.
    """
    program = [sys.executable, "-c", names.WARM_PROGRAM, names.WARM_MODULE, "--socket", str(socket)]
    try:
        with log.open("wb") as output:
            return subprocess.Popen(
                [*program, *(["--bare"] if bare else [])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # the terminal's Ctrl-C must not reach it
                env={**names.WARM_ENVIRONMENT, **os.environ, names.ENV_PARENT_PID: str(os.getpid())},
            )
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or sys.executable) from None
