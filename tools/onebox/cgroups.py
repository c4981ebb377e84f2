"""Control groups of our own: every process of the cluster lives below `trainmaster/`, and so nothing gets lost.

`processes.py` starts daemons inside them, `node.py` kills a node by them, `remains.py` looks for what remains.
The groups lie in every hierarchy that is mounted (version 1), or in the one tree (version 2).
"""

import contextlib
import itertools
import os
import signal
import time
from pathlib import Path

from tools.onebox.paths import NAME

ROOT = Path("/sys/fs/cgroup")
ENTER = 'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'


def hierarchies() -> list[Path]:
    """List the mounted hierarchies; with version 2 there is one, and it is the root."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    # Beside version 1, a version 2 tree without controllers may be mounted: runc makes groups there too.
    return sorted(Path(words[1]) for words in mounts if words[2] in {"cgroup", "cgroup2"})


def create(group: str) -> None:
    """Make a group, such as `control` or `node-1/daemons`, in every hierarchy."""
    for hierarchy in hierarchies():
        folder = hierarchy
        for part in Path(NAME, group).parts:
            _delegate(folder)
            folder /= part
            folder.mkdir(exist_ok=True)
            _inherit_cpus(folder)


def entering(group: str) -> tuple[str, ...]:
    """Give the words to put before a command, so that it enters a group first and no child is born outside."""
    files = [str(hierarchy / NAME / group / "cgroup.procs") for hierarchy in hierarchies()]
    return ("/bin/sh", "-c", ENTER, "enter", *files, "--")


def members(group: str = "") -> set[int]:
    """Collect the living processes of a group and of all groups below it."""
    pids: set[int] = set()
    for folder in _folders(group):
        with contextlib.suppress(OSError):  # a group may vanish while we read
            pids.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
    return {pid for pid in pids if _lives(pid)}


def existing() -> list[Path]:
    """List every group of ours that the kernel still has."""
    return _folders("")


def kill(group: str = "", seconds: float = 10.0) -> None:
    """End every process of a group for good, whatever it forks meanwhile.

    All are stopped before the first one ends: on a busy machine a kubelet would see its containers end, and report it.
    """
    deadline = time.monotonic() + seconds
    while (pids := members(group)) and time.monotonic() < deadline:
        for number, pid in itertools.product((signal.SIGSTOP, signal.SIGKILL), pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.02)


def remove(group: str = "", seconds: float = 10.0) -> None:
    """Remove the empty groups, children before parents. Who has ended is a member until its parent takes note."""
    deadline = time.monotonic() + seconds
    while folders := sorted(_folders(group), key=lambda found: len(found.parts), reverse=True):
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            return  # remains.py says what is left
        time.sleep(0.02)


def _lives(pid: int) -> bool:
    """A zombie has ended, though it stays a member until its parent takes note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _folders(group: str) -> list[Path]:
    found: list[Path] = []
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(hierarchy / NAME / group):
            found.append(Path(folder))
    return found


def _inherit_cpus(folder: Path) -> None:
    """Fill a new version 1 cpuset, which starts empty and then takes no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file, above = folder / name, folder.parent / name
        if folder.parent.name != "cgroup" and file.exists() and above.exists() and not file.read_text().strip():
            file.write_text(above.read_text())


def _delegate(folder: Path) -> None:
    """With version 2, hand the controllers down that a kubelet asks for."""
    control = folder / "cgroup.subtree_control"
    for controller in ("cpu", "cpuset", "io", "memory", "pids"):
        with contextlib.suppress(OSError):
            if control.exists():
                control.write_text(f"+{controller}")
