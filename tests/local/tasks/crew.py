"""A user's own parameter servers, as a script: members that find one another in the roster file and come back alone.

Each worker adds one to the count of every server at each step; a server keeps its count in a file, so that it comes
back with it. Arguments: steps, and the step before which workers wait at the gate.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Member, Roster
from trainmaster.wire.progress_page import ProgressFile, ProgressPage

ROLE, INDEX, RANK = os.environ[names.ENV_ROLE], os.environ[names.ENV_INDEX], os.environ["RANK"]
KEY = f"{ROLE}-{INDEX}"
OWN_COUNT = Path(f"{KEY}.count")
LOCK = threading.Lock()


def roster() -> Roster:
    return codec.decode(Roster, Path(os.environ[names.ENV_ROSTER]).read_bytes())


def count() -> int:
    return int(OWN_COUNT.read_text()) if OWN_COUNT.exists() else 0


def keep(value: int) -> None:
    new = OWN_COUNT.with_suffix(".new")
    new.write_text(str(value))
    new.replace(OWN_COUNT)


def leave(*_: object) -> None:
    Path(f"{KEY}.saved").touch()
    os._exit(0)


def serve() -> None:
    signal.signal(signal.SIGTERM, leave)
    listener = socket.socket(fileno=int(os.environ[names.ENV_LISTEN]))
    while True:
        line, _ = listener.accept()
        threading.Thread(target=answer, args=(line,), daemon=True).start()


def answer(line: socket.socket) -> None:
    """Who does not know the attempt's key gets no word."""
    with line, line.makefile("rw") as talk, contextlib.suppress(OSError):
        if talk.readline().strip() != roster().rendezvous.key:
            return
        for word in talk:
            with LOCK:
                keep(count() + int(word))
                talk.write(f"{count()}\n")
            talk.flush()


def add(server: int) -> None:
    """Until that server has answered: it may be on its way back."""
    while True:
        with contextlib.suppress(OSError, StopIteration, ValueError, IndexError):
            members = roster()
            line: Member = next(m for m in members.members if (m.role, m.index) == (names.PARAMETER_SERVER, server))
            with socket.create_connection((line.address, line.ports[0]), 5) as one, one.makefile("rw") as talk:
                talk.write(f"{members.rendezvous.key}\n1\n")
                talk.flush()
                int(talk.readline())
                return
        time.sleep(0.02)


def train(steps: int, hold_at: int) -> None:
    page = ProgressFile(os.environ[names.ENV_PROGRESS_FILE])
    servers = sum(member.role == names.PARAMETER_SERVER for member in roster().members)
    for step in range(count() + 1, steps + 1):
        if step == hold_at:
            Path("gate").read_text()
        for server in range(servers):
            add(server)
        keep(step)
        page.write(ProgressPage(step, 1.0, 1.0, 0.01, time.time(), "train", 0))


Path(f"rank-{RANK}-{os.environ[names.ENV_ATTEMPT]}.txt").write_text(f"{os.getpid()}\n")
with Path("starts.jsonl").open("a") as log:
    log.write(json.dumps({"who": KEY, "attempt": os.environ[names.ENV_ATTEMPT], "pid": os.getpid()}) + "\n")
if ROLE == names.PARAMETER_SERVER:
    serve()
else:
    train(int(sys.argv[1]), int(sys.argv[2]))
