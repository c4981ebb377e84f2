"""Create the private folder of one run, in memory if there is room: sockets, progress pages, the token.

It is removed when the run ends; if the run was killed, when the next one starts. Standard library only, because it is
imported before the warm parent starts.
"""

import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO, Self

from trainmaster.wire.files import delete_folder

_PREFIX = "trainmaster-"
_UNFINISHED = f".{_PREFIX}"  # without its lock yet; `sweep` must not find it by this name
_LOCK = "lock"
# A unix socket's path has at most 108 bytes (unix(7)); replicas have their folders and sockets in this folder.
_LONGEST_HOME = 40
# Progress pages are written at every step: keep them off the disk.
_MEMORY = Path("/dev/shm")  # noqa: S108  the folder in it has mode 0700
_ROOM = 1 << 20  # bytes that must be free


class Scratch:
    """Keep the folder (mode 0700) and its lock for the time of a `with`."""

    def __init__(self) -> None:
        self._lock: IO[str] | None = None
        self.path = Path()

    def __enter__(self) -> Self:
        """Create the folder.

        Raises:
            OSError: it cannot be created.
        """
        temporary = Path(tempfile.gettempdir())
        if len(str(temporary)) > _LONGEST_HOME:
            temporary = Path("/tmp")  # noqa: S108
        made = _made_with_room(_MEMORY) or _made(temporary)
        self._lock = (made / _LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))
        return self

    def __exit__(self, *_: object) -> None:
        delete_folder(self.path)
        if self._lock:
            self._lock.close()

    @property
    def warm_log(self) -> Path:
        """Return the log of the warm parent, which is nearly always empty."""
        return self.path / "warm.log"


def sweep(home: Path) -> None:
    """Remove the folders that earlier runs of this user left behind in `home`."""
    for folder in home.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.getuid() or _is_held(folder / _LOCK):
                continue
        except OSError:
            continue  # it is not a run's folder, or another run has just removed it
        delete_folder(folder)


def _is_held(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _made_with_room(home: Path) -> Path | None:
    """Return a new folder in `home`; None if there can be none, or less than _ROOM bytes fit into it."""
    try:
        made = _made(home)
    except OSError:
        return None
    probe = made / "probe"
    try:
        probe.write_bytes(bytes(_ROOM))
        probe.unlink()
    except OSError:
        delete_folder(made)
        return None
    return made


def _made(home: Path) -> Path:
    sweep(home)
    return Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=home))
