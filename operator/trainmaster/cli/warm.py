"""A warm parent for all agents of one local run: torch is imported once, while the YAML is still being read.

Standard library only: this runs before anything else is imported.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType


class WarmParent:
    """Starts it at once; ends it at the end of the `with`."""

    def __init__(self, log: Path | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="trainmaster-warm-"))
        self.socket = self._folder / "socket"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trainmaster_trainer.agent.warm", "--socket", str(self.socket)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "TRAINMASTER_PARENT_PID": str(os.getpid())},
        )

    def __enter__(self) -> "WarmParent":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGKILL)  # it holds nothing: its ranks have ended, or end with it
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
