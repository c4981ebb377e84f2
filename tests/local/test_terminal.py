"""The live view, on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from fcntl import ioctl

import pytest

from tests.local.command import Command, a_job, a_script, kill

CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """What a person would see, as one growing text."""

    def __init__(self, columns: int = 80) -> None:
        self.ours, self.theirs = pty.openpty()
        ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.text = ""
        self.raw = b""

    def read(self) -> bool:
        """Read on; False at the end."""
        try:
            data = os.read(self.ours, 65536)
        except OSError:
            return False
        self.raw += data
        self.text = CONTROL.sub(b"", self.raw).decode(errors="replace").replace("\r", "")
        return bool(data)

    def until(self, pattern: str) -> None:
        """Read until this was drawn."""
        while not re.search(pattern, self.text):
            assert self.read(), f"{pattern} was never drawn:\n{self.text}"

    def close(self) -> None:
        """Both ends."""
        os.close(self.ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    one = Terminal()
    yield one
    one.close()


def start(command: Command, terminal: Terminal) -> subprocess.Popen[bytes]:
    """In a session of its own, whose terminal it is."""
    process = command.start_on(terminal.theirs)
    os.close(terminal.theirs)
    return process


def test_the_live_view_shows_step_loss_speed_eta_and_workers(command: Command, terminal: Terminal) -> None:
    """While it runs; and again after a restart, with their number."""
    command.make_gate()
    command.write(a_job(arguments={"hold_at": 25}))
    process = start(command, terminal)
    terminal.until(
        r"starting 2 workers \(\d*s?\): (no word yet from worker-0|\d of 2 replicas import modules and load)"
    )
    terminal.until(r"PHASE +STEP +LOSS +SAMPLES/S +ETA +WORKERS")
    terminal.until(r"Running +24/40 +\d[\d.e-]* +[\d,]+ +\d+s +2/2")
    command.until_held(0, 1)
    kill(command.rank_pid(1), signal.SIGKILL)
    terminal.until(r"Restarting: Attempt 2: worker-1 rank 1: .*SIGKILL")
    terminal.until(r"WORKERS +RESTARTS")
    command.open_gate()
    terminal.until(r"Succeeded: All 2 workers finished.")
    while terminal.read():
        pass
    assert process.wait(100) == 0
    assert re.search(r"logs +\S+/logs: one file for each start of each worker", terminal.text)
    assert re.search(r"restarts +1\n +\d\d:\d\d:\d\d  worker-1 rank 1 at step 24: SIGKILL.*s lost", terminal.text)


def test_ctrl_c_on_the_terminal(command: Command, terminal: Terminal) -> None:
    """The whole foreground group gets it, and still the ranks end in order."""
    command.write(a_script("import time\nprint('on and on')\ntime.sleep(600)", command.folder))
    process = start(command, terminal)
    terminal.until("on and on")
    os.write(terminal.ours, b"\x03")
    while terminal.read():
        pass
    assert process.wait(100) == 130
    assert "Stopping: the ranks save and end." in terminal.text
    assert "Go on with: trainmaster run" in terminal.text
    assert re.search(r"^Stopped before its first checkpoint; ", terminal.text, re.MULTILINE)


def test_a_terminal_that_is_closed_ends_the_run(command: Command, terminal: Terminal) -> None:
    """SIGHUP; nothing may be left."""
    command.write(a_script("import time\nprint('on and on')\ntime.sleep(600)", command.folder))
    process = start(command, terminal)
    terminal.until("on and on")
    os.close(terminal.ours)
    terminal.ours = os.open(os.devnull, os.O_RDONLY)
    assert process.wait(100) != 0


def test_progress_bars_and_colours_of_the_script_are_kept_in_order(command: Command, terminal: Terminal) -> None:
    """Of a line that was overwritten, only the last version."""
    text = r"print('\r 1%\r 50%\r100% \x1b[31mred\x1b[0m', flush=True)"
    command.write(a_script(text, command.folder))
    process = start(command, terminal)
    while terminal.read():
        pass
    assert process.wait(100) == 0
    assert "100% red" in terminal.text
    assert "50%" not in terminal.text
