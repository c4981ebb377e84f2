"""A lock on the folder of checkpoints: one worker at a time writes its metrics file.

Who has to write follows from the roster, and workers hear of a change at different times: for a moment the one that is
back and the one that stood in for it both hold themselves for the writer. Each begins by cutting off what is later than
it knows, so without a lock lines were lost.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from trainmaster.wire.files import open_to_write

LOCK = ".writer.lock"


class WriterLock:
    """WriterLock is the lock of one worker. The kernel takes it back when its process ends.

    It is a record lock (fcntl), which network file systems know and children do not inherit. A file system without
    locks is used without one.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Return whether this worker may write now. It does not wait for another one."""
        try:
            if self._descriptor is None:
                self._descriptor = open_to_write(self._path, os.O_CREAT, 0o666)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in {errno.EAGAIN, errno.EACCES} or self._descriptor is None
        return True

    def release(self) -> None:
        """Let another worker write."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
