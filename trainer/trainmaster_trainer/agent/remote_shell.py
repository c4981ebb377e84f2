"""Be the remote shell of MPI's launcher: no sshd, no keys of users, no root.

`serve ADDRESS PORT KEYFILE` runs in each worker but the first: it carries out the command lines of those who prove the
attempt's key, one for each connection. `call HOSTS KEYFILE HOST COMMAND...` is what mpirun runs in place of ssh.
It imports the standard library only, as it is run by its path.

The key is proved, not sent: the server sends a random text, and the answer is its HMAC with the command. So who listens
on the way learns no key, and can neither change the command nor use the answer again.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import List, NoReturn, Optional, Sequence

_PATIENCE_SECONDS = 300.0  # for the server of a worker whose rank begins late
_PAUSE_SECONDS = 0.05
_PROOF_SECONDS = 10.0
_MOST_BYTES = 1 << 20
_MOST_AT_ONCE = 32  # connections of strangers must not use up all threads
_CANNOT_CONNECT = 255  # as ssh ends


def serve(address: str, port: int, key: str) -> NoReturn:
    """Carry out commands for ever: the agent ends this process."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as listener:
        places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        while True:
            connection, _ = listener.accept()
            if places.acquire(blocking=False):
                threading.Thread(target=_answer, args=(connection, key, places), daemon=True).start()
            else:
                connection.close()


def _answer(connection: socket.socket, key: str, places: threading.BoundedSemaphore) -> None:
    try:
        with connection, connection.makefile("rwb") as stream:
            command = _proved(connection, stream, key)
            if command is not None:
                running = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL)
                threading.Thread(target=_end_with, args=(connection, running), daemon=True).start()
                code = running.wait()
                code = 128 - code if code < 0 else code  # as a shell tells it
                stream.write(b"%d\n" % code)
                stream.flush()
                connection.shutdown(socket.SHUT_RDWR)  # closing does not end it while another thread reads from it
    except (OSError, ValueError):
        pass  # it has gone, or is no client of ours
    finally:
        places.release()


def _proved(connection: socket.socket, stream: io.BufferedRWPair, key: str) -> Optional[str]:
    """Return the command of a client that knows the key; None for all others, which are told nothing."""
    connection.settimeout(_PROOF_SECONDS)
    challenge = secrets.token_hex(16)
    stream.write(f"{challenge}\n".encode())
    stream.flush()
    told = json.loads(stream.readline(_MOST_BYTES))
    command, proof = str(told["command"]), str(told["proof"])
    connection.settimeout(None)
    return command if hmac.compare_digest(proof.encode(), _proof(key, challenge, command).encode()) else None


def _end_with(connection: socket.socket, running: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1)  # a client says no more, so this is its end
    running.terminate()


def call(hosts: Path, key: str, host: str, command: Sequence[str]) -> int:
    """Run the command on a host of the table, as ssh would; return its exit code. On the first it is run here."""
    table = json.loads(hosts.read_text(encoding="utf-8"))
    # Open MPI's daemon stays in our session, with which it ends.
    line = re.sub(r"(?<!\S)--daemonize(?!\S)", "", " ".join(command))
    line = re.sub(r"(?<!\S)(\S*prted)(?!\S)", r"\1 --leave-session-attached", line)
    if host == next(iter(table)):
        os.execv("/bin/sh", ["sh", "-c", line])  # noqa: S606 as ssh would have a shell do
    address, port = table[host]
    with _connected(address, port) as connection, connection.makefile("rwb") as stream:
        challenge = stream.readline(_MOST_BYTES).decode().strip()
        told = {"command": line, "proof": _proof(key, challenge, line)}
        stream.write(f"{json.dumps(told)}\n".encode())
        stream.flush()
        answer = stream.readline(_MOST_BYTES)
    return int(answer) if answer.strip().isdigit() else _CANNOT_CONNECT


def _connected(address: str, port: int) -> socket.socket:
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection = socket.create_connection((address, port), _PROOF_SECONDS)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            connection.settimeout(None)
            return connection


def _proof(key: str, challenge: str, command: str) -> str:
    return hmac.new(key.encode(), f"{challenge}\n{command}".encode(), "sha256").hexdigest()


def main(arguments: List[str]) -> int:
    """Serve, or call, as the arguments say."""
    if arguments[0] == "serve":
        address, port, key = arguments[1:]
        serve(address, int(port), Path(key).read_text(encoding="utf-8"))
    hosts, key, host, *command = arguments[1:]
    return call(Path(hosts), Path(key).read_text(encoding="utf-8"), host, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
