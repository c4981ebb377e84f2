"""Run a program beside a rank, such as a framework's tracker: it ends with the rank, and its failure is the rank's.

A keeper watches both. It is forked from the rank's process before the script begins and is no child of it, so that a
script which waits for all its children does not wait for this one. It stays in the rank's process group, with which the
warm parent ends it.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable, List, Optional, Sequence, Tuple

from trainmaster.wire.files import delete_folder

from trainmaster_trainer.agent import process, rank_errors

_PATIENCE_SECONDS = 300.0  # for a companion of another replica, whose end would be heard of from there
_PAUSE_SECONDS = 0.05
_MOST_SAID = 4000
_FRAME = re.compile(r"\t|\s*\[bt\] |Stack trace:")


@dataclass(frozen=True)
class Companion:
    """A companion is a program that runs beside a rank and ends with it; `title` is what messages call it."""

    title: str
    command: Tuple[str, ...]


class CompanionError(Exception):
    """CompanionError says that a program beside a rank has failed, or does not answer."""


def start(companion: Companion, error_file: Optional[str]) -> None:
    """Start a companion of this process. If it fails, this process is killed, and its error file says why."""
    _beside(lambda owner: _keep(companion, owner, error_file))


def end_session(removes: Sequence[str] = ()) -> None:
    """Have all processes of this one's session end with it: a launcher gives what it starts groups of their own.

    The folders in `removes` are then deleted.
    """
    session = os.getsid(0)
    _beside(lambda owner: _sweep(session, owner, removes))


def _beside(watch: Callable[[int], None]) -> None:
    """Run `watch` in a process that is no child of this one; it gets a descriptor that tells of this one's end."""
    owner = os.pidfd_open(os.getpid())
    between = process.fork()
    if between == 0:
        if process.fork() == 0:
            process.default_signals()
            process.rename("tm-companion")
            watch(owner)
        os._exit(0)
    os.waitpid(between, 0)
    os.close(owner)


def wait_for(title: str, address: str, port: int, seconds: float = _PATIENCE_SECONDS) -> None:
    """Wait until somebody accepts connections there.

    Raises:
        CompanionError: nobody has for so many seconds.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, port), 5.0).close()
        except OSError as error:
            if time.monotonic() > until:
                why = f"{title} at {address} port {port} has not answered for {seconds:g} s: {error}"
                raise CompanionError(why) from None
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _sweep(session: int, owner: int, removes: Sequence[str]) -> None:
    """Wait for the end of the rank, and kill what is left of its session; the rank's group is killed by others."""
    os.setsid()
    select.select([owner], [], [])
    while any([_killed(pid, session) for pid in process.all_pids()]):  # noqa: C419 all of them
        time.sleep(_PAUSE_SECONDS)
    for folder in removes:
        delete_folder(Path(folder))


def _killed(pid: int, session: int) -> bool:
    with contextlib.suppress(OSError):  # it has gone meanwhile
        if os.getsid(pid) == session and process.stat(pid)[0] != b"Z":
            process.kill(pid, signal.SIGKILL)
            return True
    return False


def _keep(companion: Companion, owner: int, error_file: Optional[str]) -> None:
    """Run the companion until it or the rank's process, which `owner` refers to, has ended."""
    try:
        why = _run(companion, owner)
    except OSError as error:
        why = f"{companion.title} cannot be started: {error.strerror}: {companion.command[0]}"
    if why and not select.select([owner], [], [], 0)[0]:  # the owner has not ended
        if error_file and not Path(error_file).exists():
            rank_errors.write(error_file, CompanionError(why))
        with contextlib.suppress(OSError):  # it has ended just now
            signal.pidfd_send_signal(owner, signal.SIGKILL)


def _run(companion: Companion, owner: int) -> str:
    """Return why the companion has failed; empty where it has done its work, or the rank has ended before it."""
    die = partial(process.die_with_parent, os.getpid())
    running = subprocess.Popen(
        companion.command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=die,  # noqa: PLW1509 this process has one thread
    )
    assert running.stderr is not None  # noqa: S101 asked for
    end, said = os.pidfd_open(running.pid), b""
    reading = [running.stderr.fileno()]
    while True:
        ready = select.select([owner, end, *reading], [], [])[0]
        if owner in ready:
            return ""
        if ready == [end]:
            break
        if ready[-1] in reading:
            data = os.read(ready[-1], 1 << 16)
            reading = reading if data else []
            with contextlib.suppress(OSError):  # nobody reads any more
                os.write(2, data)
            said = (said + data)[-_MOST_SAID:]
    code = running.wait()
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    last = last_told(said.decode(errors="replace").splitlines())
    told = f": {last}" if last else ""
    return f"{companion.title} ended {how} before the training was over{told}" if code else ""


def last_told(lines: List[str]) -> str:
    """Return the last line that tells something: not the frames that Java and XGBoost print below an error."""
    told = [line for line in lines if line.strip()]
    errors_first = [line for line in told if not _FRAME.match(line)] or told
    return errors_first[-1].strip() if errors_first else ""
