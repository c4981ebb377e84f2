"""The folder of one local run: status, logs, checkpoints, metrics; and the scratch folder of its processes.

```
DIR/status.json   the same `.status` that a cluster shows
DIR/checkpoints/  step-00000050/..., metrics.jsonl, result.json
DIR/logs/         one file per agent
```
One run at a time may use a folder: it is locked for as long as the run lives.
"""

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import IO, Any

from trainmaster.api.status import TrainingJobStatus


class InUseError(Exception):
    """Another run holds this folder."""


class Workdir:
    """Creates the folders and holds the lock. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.checkpoints = path / "checkpoints"
        self.status_file = path / "status.json"
        self.scratch = Path()
        self._lock: IO[str] | None = None

    def __enter__(self) -> "Workdir":
        for folder in (self.path, self.logs, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(f"{self.path} is in use by another run; wait for it, or choose another --workdir") from None
        self.scratch = Path(tempfile.mkdtemp(prefix="trainmaster-", dir=_memory_folder()))
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self._lock:
            self._lock.close()

    def write_token(self) -> str:
        """A new token for this run's agents, in a file that only this user can read."""
        token = secrets.token_urlsafe(32)
        path = self.scratch / "token"
        path.touch(mode=0o600)
        path.write_text(token)
        return token

    def write_status(self, status: TrainingJobStatus) -> None:
        """Replace status.json as a whole, so that a reader never sees half of it."""
        temporary = self.status_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(status.to_dict(), indent=1) + "\n")
        temporary.replace(self.status_file)

    def read_status(self) -> TrainingJobStatus:
        """What an earlier run left; an empty status if there was none, or nobody can read it."""
        try:
            return TrainingJobStatus.read(json.loads(self.status_file.read_text()))
        except (OSError, ValueError):
            return TrainingJobStatus()

    def forget_result(self) -> None:
        """An evaluation of an earlier run must not be taken for one of this run."""
        (self.checkpoints / "result.json").unlink(missing_ok=True)

    def result(self) -> dict[str, Any]:
        """What the trainer evaluated at the end; empty if nothing."""
        try:
            result = json.loads((self.checkpoints / "result.json").read_text())
        except (OSError, ValueError):
            return {}
        return result if isinstance(result, dict) else {}


def _memory_folder() -> str | None:
    """Progress pages are written at every step: keep them off the disk where that is possible."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  the folder's mode is 0700
