"""The private folder of one run, in memory where that has room: sockets, progress pages, the token.

It goes when the run ends; that of a run which was killed goes when the next one starts. Standard library only:
cli/run.py makes it before anything heavy is imported.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, Self

_PREFIX = "trainmaster-"
_UNFINISHED = f".{_PREFIX}"  # not yet locked, so nobody may take it for one that was left behind
_LOCK = "lock"
# A unix socket's path must be short (unix(7): 108 bytes); replicas have folders and sockets of their own in it.
_LONGEST_HOME = 40
# Progress pages are written at every step: keep them off the disk.
_MEMORY = Path("/dev/shm")  # noqa: S108  the folder in it has mode 0700
_ROOM = 1 << 20  # bytes; less is no room for a run


class Scratch:
    """Makes the folder, with mode 0700, and holds its lock. Use as a context manager."""

    def __init__(self) -> None:
        self._lock: IO[str] | None = None
        self.path = Path()

    def __enter__(self) -> Self:
        """Raises: OSError."""
        made = _made_with_room(_MEMORY) or _made(_temporary_folder())
        self._lock = (made / _LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock:
            self._lock.close()

    @property
    def warm_log(self) -> Path:
        """What the warm parent says; hardly ever anything."""
        return self.path / "warm.log"


def sweep(home: Path) -> None:
    """Remove what runs of this user left behind that could not clean up."""
    for folder in home.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.getuid() or _is_held(folder / _LOCK):
                continue
        except OSError:
            continue  # not a run's folder, or somebody else was faster
        shutil.rmtree(folder, ignore_errors=True)


def _is_held(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _made_with_room(home: Path) -> Path | None:
    """None where there can be no folder, or nothing more in it."""
    try:
        made = _made(home)
    except OSError:
        return None
    probe = made / "probe"
    try:
        probe.write_bytes(bytes(_ROOM))
        probe.unlink()
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        return None
    return made


def _made(home: Path) -> Path:
    sweep(home)
    return Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=home))


def _temporary_folder() -> Path:
    other = Path(tempfile.gettempdir())
    return other if len(str(other)) <= _LONGEST_HOME else Path("/tmp")  # noqa: S108
