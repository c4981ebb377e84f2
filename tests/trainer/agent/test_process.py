"""System calls of the agent that fail, and ends of whole groups of processes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster_trainer.agent import process

TRACKER = "from multiprocessing.resource_tracker import main"

NO_PROCESS_LEFT = """
import os, resource, signal
from trainmaster_trainer.agent import process

if os.getuid() == 0:
    os.setuid(65534)  # root has no limit
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    process.fork()
except BlockingIOError:
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_a_fork_that_fails_leaves_signals_as_they_were() -> None:
    """Without SIGCHLD the warm parent would never see a rank end again."""
    ran = subprocess.run([sys.executable, "-c", NO_PROCESS_LEFT], check=True, stdout=subprocess.PIPE, text=True)
    assert ran.stdout == "set()\n"


NO_DESCRIPTOR_LEFT = """
import os, resource, signal, subprocess
from trainmaster_trainer.agent import process

child = subprocess.Popen(["sleep", "600"], start_new_session=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
process.kill_group(child.pid, signal.SIGKILL)
print(child.wait())
"""


def test_a_group_is_killed_where_no_descriptor_is_left() -> None:
    ran = subprocess.run([sys.executable, "-c", NO_DESCRIPTOR_LEFT], check=True, stdout=subprocess.PIPE, text=True)
    assert ran.stdout == f"{-signal.SIGKILL}\n"


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Looks like one, in a group of its own. At a line of input it is stuck in the kernel, as a parent in vfork is."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    spawn = f"os.posix_spawn('/bin/true', ['true'], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 5, {str(fifo)!r}, 0, 0)])"
    command = [sys.executable, "-c", f"{TRACKER}\nimport os, sys\nprint(flush=True)\ninput()\n{spawn}"]
    with subprocess.Popen(
        command, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        os.killpg(child.pid, signal.SIGKILL)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_the_command_line_of_who_is_stuck_in_the_kernel_is_not_read(tracker: subprocess.Popen[str]) -> None:
    """It may be for ever, in a page fault on a network's disk say, and the agent has one thread."""
    assert process._is_tracker(tracker.pid)
    assert tracker.stdin is not None
    tracker.stdin.write("\n")
    tracker.stdin.flush()
    until = time.monotonic() + 200
    while state_of(tracker.pid) != "D":
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not process._is_tracker(tracker.pid)


def test_no_group_stays_stopped_where_proc_can_be_read_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is killed then."""
    looks: list[str] = []
    listdir = os.listdir

    def once(path: str) -> list[str]:
        looks.append(path)
        if len(looks) > 1:
            raise OSError(24, "Too many open files")
        return listdir(path)

    shell = f"{sys.executable} -c '{TRACKER}; import time; print(flush=True); time.sleep(600)' & wait"
    with subprocess.Popen(["sh", "-c", shell], start_new_session=True, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        monkeypatch.setattr(os, "listdir", once)
        process.kill_group(child.pid, signal.SIGKILL)
        assert child.stdout.read() == b""  # who held it has ended
    assert len(looks) == 2


ASKED = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n{}print('ready', flush=True)\n{}\n"
WORKER = "import subprocess\nw = subprocess.Popen(['sleep', '600'])\n"


@pytest.mark.parametrize("shell", [False, True], ids=["a Python", "a shell above it"])
def test_who_is_asked_to_end_still_has_what_it_started(shell: bool) -> None:
    """Workers of data loaders are needed for the save, and a shell passes nothing on."""
    end = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7 if w.poll() is None else 1))\nsignal.pause()"
    program = ASKED.format(WORKER, end)
    command = [sys.executable, "-c", program]
    if shell:
        command = ["sh", "-c", f"trap '' USR1; {shlex.join(command)}; echo $?"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        process.ask_to_end(child.pid)
        code = child.wait()
        os.killpg(child.pid, signal.SIGKILL)
    assert code == (-signal.SIGTERM if shell else 7)
