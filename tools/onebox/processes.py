"""Starts and stops the daemons of the cluster, and remembers them in files so that any later process can.

`controlplane.py` and `node.py` say what to run, `cluster.py` when. A record holds the command as well as the pid:
a daemon that was stopped can be started again by someone who knows nothing but its name.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.onebox import cgroups
from tools.onebox.paths import LOGS, PROCESSES
from tools.onebox.shell import OneboxError

SELDOM_COLLECTING = {"GOGC": "400"}
"""For programs in Go: garbage may be four times of what lives, for a seventh less of the processor at their start."""


@dataclass(frozen=True)
class Daemon:
    """A program that runs until it is told to stop."""

    name: str
    command: tuple[str, ...]
    group: str  # its control group, below `trainmaster/`


@dataclass(frozen=True)
class Record:
    """What is known of a daemon that was started; `born` tells it from another process with the same pid."""

    name: str
    command: tuple[str, ...]
    group: str
    pid: int
    born: str


def start(daemon: Daemon) -> None:
    """Start a daemon unless it runs already, with its output in `.cluster/logs/<name>.log`."""
    if alive(daemon.name):
        return
    cgroups.create(daemon.group)
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{daemon.name}.log").open("ab") as log:
        process = subprocess.Popen(
            (*cgroups.entering(daemon.group), *daemon.command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C in our terminal is not for the cluster
            env={**os.environ, **SELDOM_COLLECTING},
        )
    _write(Record(daemon.name, daemon.command, daemon.group, process.pid, _born(process.pid)))


def start_again(name: str) -> None:
    """Start a daemon as it was started the last time."""
    record = _read(name)
    if record is None:
        raise OneboxError(f"{name} was never started; there are: {', '.join(names())}")
    start(Daemon(record.name, record.command, record.group))


def stop(name: str, sign: signal.Signals = signal.SIGTERM, seconds: float = 5.0) -> None:
    """Stop a daemon and wait until it is gone; what does not listen is killed."""
    record = _read(name)
    if record is None or not _lives(record):
        return
    os.kill(record.pid, sign)
    try:
        wait(lambda: not _lives(record), f"{name} ends", seconds)
    except OneboxError:
        os.kill(record.pid, signal.SIGKILL)
        wait(lambda: not _lives(record), f"{name} ends after a kill", seconds)


def alive(name: str) -> bool:
    """Say whether a daemon runs."""
    record = _read(name)
    return record is not None and _lives(record)


def require(*wanted: str) -> None:
    """Insist that daemons run, so that nobody waits for one that ended; its last words say why."""
    for name in wanted:
        if not alive(name):
            log = LOGS / f"{name}.log"
            tail = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
            raise OneboxError(f"{name} ended; {log} ends with:\n" + "\n".join(line[:500] for line in tail))


def names() -> list[str]:
    """List the daemons that were started in this cluster, running or not."""
    return sorted(file.stem for file in PROCESSES.glob("*.json"))


def pid(name: str) -> int | None:
    """Tell the pid of a running daemon."""
    record = _read(name)
    return record.pid if record is not None and _lives(record) else None


def forget(name: str) -> None:
    """Drop the record of a daemon that will not come back."""
    (PROCESSES / f"{name}.json").unlink(missing_ok=True)


def wait(condition: Callable[[], bool], what: str, seconds: float, pause: float = 0.05) -> None:
    """Wait until something holds, with a pause between two looks; say what did not happen in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise OneboxError(f"waited {seconds:.0f} s in vain until {what}; the logs are in {LOGS}")
        time.sleep(pause)


def _write(record: Record) -> None:
    PROCESSES.mkdir(parents=True, exist_ok=True)
    (PROCESSES / f"{record.name}.json").write_text(json.dumps(asdict(record), indent=1))


def _read(name: str) -> Record | None:
    try:
        fields = json.loads((PROCESSES / f"{name}.json").read_text())
    except FileNotFoundError:
        return None
    return Record(**(fields | {"command": tuple(fields["command"])}))


def _lives(record: Record) -> bool:
    """A zombie of ours counts as gone, and is reaped on the way."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(record.pid, os.WNOHANG)
    return _born(record.pid) == record.born


def _born(pid: int) -> str:
    """Name one life of one pid: the boot, and the clock tick at which the process started."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "" if fields[0] in "ZX" else f"{boot}/{fields[19]}"
