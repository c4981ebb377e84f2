"""Programs beside a rank: they are up first, end with it, and their failure is its failure."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from trainmaster.core.failures import classes
from trainmaster.core.failures.signatures import class_of
from trainmaster_trainer.agent import companions, evidence

from tests.trainer.agent.machine import wait_gone

# A rank that starts a companion and says so; then it waits to be ended.
RANK = """
import os, signal, sys
from trainmaster_trainer.agent import companions
os.setsid()
{prepare}
print("begun", flush=True)
signal.pause()
"""
START = "companions.start(companions.Companion('the tracker', tuple(sys.argv[2:])), sys.argv[1])"


def a_rank(folder: Path, *command: str, prepare: str = START) -> subprocess.Popen[str]:
    """A process with this companion, in a session of its own."""
    program = [sys.executable, "-c", RANK.format(prepare=prepare), str(folder / "error.json"), *command]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def failed(folder: Path, *command: str) -> tuple[str, str, int]:
    """What is said of a companion that fails, its class, and how the rank ended."""
    with a_rank(folder, *command) as rank:
        code = rank.wait(200)
    error = evidence.read_error(folder / "error.json")
    assert error
    return error.message, class_of(error), code


def test_a_companion_that_fails_ends_its_rank_and_its_last_line_is_the_evidence(tmp_path: Path) -> None:
    words = "import sys; sys.stderr.write('one line\\nthe last line\\n'); sys.exit(3)"
    message, kind, code = failed(tmp_path, sys.executable, "-c", words)
    assert message == "the tracker ended with exit code 3 before the training was over: the last line"
    assert (kind, code) == (classes.PEER_LOST, -signal.SIGKILL)


def test_a_companion_whose_port_is_taken_is_weather(tmp_path: Path) -> None:
    """The next attempt has other ports. XGBoost's tracker prints the frames of its native code after the reason."""
    frames = "Stack trace:\\n  [bt] (0) /lib/libxgboost.so(+0x1) [0x2]\\n  [bt] (1) /lib/libffi.so(+0x3) [0x4]\\n\\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = f"import socket; socket.create_server(('127.0.0.1', {taken.getsockname()[1]}))"
        program = f"import sys, atexit; atexit.register(sys.stderr.write, '{frames}'); {program}"
        message, kind, _ = failed(tmp_path, sys.executable, "-c", program)
    assert "Address already in use" in message
    assert kind == classes.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/nowhere/python",), "/nowhere/python"),
        ((sys.executable, "-c", "import xgboost_of_nobody"), "No module named 'xgboost_of_nobody'"),
        ((sys.executable, "-c", "(lambda port: 0)(port=1, sortby='task')"), "unexpected keyword argument 'sortby'"),
        ((sys.executable, "-c", "import socket; socket.Tracker()"), "no attribute 'Tracker'"),
    ],
)
def test_a_companion_that_is_not_there_or_too_old_ends_the_job(
    tmp_path: Path, command: tuple[str, ...], said: str
) -> None:
    message, kind, _ = failed(tmp_path, *command)
    assert said in message
    assert kind == classes.CONFIGURATION


def test_a_companion_that_has_done_its_work_leaves_the_rank_alone(tmp_path: Path) -> None:
    with a_rank(tmp_path, "true") as rank:
        assert rank.stdout
        rank.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            rank.wait(1)
        rank.kill()
    assert not (tmp_path / "error.json").exists()


def test_a_companion_ends_with_its_rank(tmp_path: Path) -> None:
    program = f"import os, signal; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); signal.pause()"
    with a_rank(tmp_path, sys.executable, "-c", program) as rank:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert rank.poll() is None
        rank.kill()
    assert wait_gone(int((tmp_path / "pid").read_text()))


def test_what_a_launcher_has_started_in_groups_of_their_own_ends_with_it(tmp_path: Path) -> None:
    prepare = """
import subprocess
companions.end_session()
other = subprocess.Popen(["sleep", "1000"], process_group=0)
print(other.pid, flush=True)
"""
    with a_rank(tmp_path, prepare=prepare) as rank:
        assert rank.stdout
        other = int(rank.stdout.readline())
        assert os.getpgid(other) != os.getpgid(rank.pid)
        rank.kill()
    assert wait_gone(other)


def test_nobody_begins_before_the_companion_accepts_connections() -> None:
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))  # as an agent keeps a port: who connects is refused
        port = kept.getsockname()[1]
        with pytest.raises(companions.CompanionError, match=f"the tracker at 127.0.0.1 port {port} has not answered"):
            companions.wait_for("the tracker", "127.0.0.1", port, 0.2)
        begun = threading.Event()

        def begin() -> None:
            begun.set()
            kept.listen()

        threading.Timer(0.3, begin).start()
        companions.wait_for("the tracker", "127.0.0.1", port)
        assert begun.is_set()
