"""The remote shell of MPI's launcher: commands of those who know the attempt's key, and of nobody else."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from trainmaster_trainer.agent import remote_shell

from tests.ports import free_port

_PROGRAM = [sys.executable, "-I", str(Path(remote_shell.__file__))]


@dataclass
class Door:
    """A worker that serves, and what a launcher on another one has."""

    folder: Path
    port: int

    def call(self, *command: str, key: str = "key", host: str = "worker-1") -> subprocess.CompletedProcess[str]:
        """Run a command there, as mpirun would have ssh do."""
        (self.folder / key).write_text(key)
        program = [*_PROGRAM, "call", str(self.folder / "hosts"), str(self.folder / key), host]
        return subprocess.run([*program, *command], capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    """A worker that begins to serve; its port is known before."""
    port = free_port()
    (tmp_path / "served").write_text("key")
    (tmp_path / "hosts").write_text(json.dumps({"worker-0": ["127.0.0.1", 1], "worker-1": ["127.0.0.1", port]}))
    process = subprocess.Popen([*_PROGRAM, "serve", "127.0.0.1", str(port), str(tmp_path / "served")])
    yield Door(tmp_path, port)
    process.kill()
    process.wait()


def test_a_command_runs_there_and_its_exit_code_comes_back(door: Door) -> None:
    made = door.folder / "made by it"
    assert door.call(f"touch '{made}'; exit 7").returncode == 7
    assert made.exists()


def test_two_launchers_have_a_command_each(door: Door) -> None:
    assert [door.call("true").returncode, door.call("kill -9 $$").returncode] == [0, 137]


def test_the_first_worker_runs_its_own(door: Door) -> None:
    found = door.call("echo", "here;", "exit 3", host="worker-0")
    assert (found.stdout, found.returncode) == ("here\n", 3)


def test_who_does_not_know_the_key_runs_nothing_and_hears_nothing(door: Door) -> None:
    assert door.call(f"touch {door.folder}/made", key="another").returncode == 255
    for words in (b"\n", b"[]\n", b'{"command": "touch made", "proof": "' + b"0" * 64 + b'"}\n', b"\xff\xfe\n"):
        assert _tell(door.port, words) == b""
    assert not (door.folder / "made").exists()
    assert door.call("true").returncode == 0, "and it serves on"


def test_a_proof_that_was_listened_to_is_of_no_use_again(door: Door) -> None:
    assert door.call("true").returncode == 0
    with socket.create_connection(("127.0.0.1", door.port)) as line:
        challenge = line.makefile().readline().strip()
    old = {"command": "touch made", "proof": remote_shell._proof("key", challenge, "touch made")}
    assert _tell(door.port, json.dumps(old).encode() + b"\n") == b""


def test_a_connection_is_good_for_one_command(door: Door) -> None:
    """A daemon of MPI's has a connection of its own; who proves the key once has not done so for what follows."""
    assert door.call("true").returncode == 0
    with socket.create_connection(("127.0.0.1", door.port)) as line, line.makefile("rwb") as stream:
        challenge = stream.readline().decode().strip()
        for words in ("exit 3", f"touch {door.folder}/made"):
            told = {"command": words, "proof": remote_shell._proof("key", challenge, words)}
            stream.write(json.dumps(told).encode() + b"\n")
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            stream.flush()
            stream.read()
    assert door.call("true").returncode == 0, "and it serves on"
    assert not (door.folder / "made").exists()


def test_it_listens_at_the_workers_own_address_only(door: Door) -> None:
    """At another address of this machine nobody answers."""
    assert door.call("true").returncode == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", door.port)).close()


def test_a_command_ends_with_its_launcher(door: Door) -> None:
    begun = door.folder / "begun"
    program = [*_PROGRAM, "call", str(door.folder / "hosts"), str(door.folder / "served"), "worker-1"]
    line = f"trap 'touch {door.folder}/ended; exit' TERM; touch {begun}; while :; do sleep 0.01; done"
    with subprocess.Popen([*program, line]) as launcher:
        while not begun.exists():
            pass
        launcher.kill()
    while not (door.folder / "ended").exists():
        pass


def _tell(port: int, words: bytes) -> bytes:
    """What a stranger hears after the challenge, to which it says this."""
    with socket.create_connection(("127.0.0.1", port)) as line, line.makefile("rwb") as stream:
        stream.readline()
        stream.write(words)
        stream.flush()
        with contextlib.suppress(ConnectionResetError):
            return stream.read()
    return b""
