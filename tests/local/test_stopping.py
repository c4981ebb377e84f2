"""Ctrl-C, SIGTERM, SIGKILL: whatever ends a run, nothing of it is left, and it can go on later."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainmaster.cli.interrupts import Interrupts

from tests.local.command import TASKS, Command, a_job, a_script, kill, wait_gone

HELD = {"hold_at": 25}
ENDLESS = "import time\nprint('on and on', flush=True)\ntime.sleep(600)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_saves_and_ends_and_the_run_can_go_on(command: Command, number: signal.Signals) -> None:
    """Exit code 130, a checkpoint of the step that was reached, and the command to go on."""
    command.make_gate()
    command.start(a_job(arguments=HELD))
    command.until_step(24)
    command.send(number)
    command.until(lambda line: line.get("progress", {}).get("phase") == "Suspended")
    command.open_gate()
    assert command.end() == 130
    stopped = command.status
    assert stopped == command.seen[-1]
    assert stopped["checkpoint"]["step"] >= 25
    assert stopped["progress"]["step"] == stopped["checkpoint"]["step"]
    assert f"--workdir {command.workdir}" in command.stderr
    if number == signal.SIGINT:  # going on is the same after each
        assert command.start(a_job(arguments=HELD)).end() == 0
        assert command.status["restartCount"] == 0


def test_a_task_saves_with_the_processes_that_read_its_samples(command: Command) -> None:
    """Only the rank itself is asked to end: to come to its next checkpoint it needs them."""
    shutil.copy(TASKS / "readers.py", command.folder)
    command.make_gate()
    job = a_job(arguments=HELD)
    job["spec"]["training"]["task"] = "readers:Reads"
    command.start(job)
    command.until_step(24)
    command.send(signal.SIGTERM)
    command.until(lambda line: line.get("progress", {}).get("phase") == "Suspended")
    command.open_gate()
    assert command.end() == 130
    assert command.status["checkpoint"]["step"] >= 25


def test_a_terminal_that_goes_hangs_up_twice_and_the_ranks_still_save(command: Command) -> None:
    """By its shell, and some ms later by the kernel."""
    command.make_gate()
    command.start(a_job(arguments=HELD))
    command.until_step(24)
    command.send(signal.SIGHUP)
    command.until(lambda line: line.get("progress", {}).get("phase") == "Suspended")
    command.send(signal.SIGHUP)
    command.open_gate()
    assert command.end() == 130
    assert command.status["checkpoint"]["step"] >= 25


# What comes when (seconds), and how often that asks to end.
WISHES = {
    "timeout signals its child and the group": ([(signal.SIGTERM, 0.0), (signal.SIGTERM, 0.001)], 1),
    "a person": ([(signal.SIGINT, 0.0), (signal.SIGINT, 1.5)], 2),
    "in a hurry": ([(signal.SIGINT, 0.0), (signal.SIGINT, 0.5), (signal.SIGINT, 1.1), (signal.SIGINT, 1.2)], 3),
    "a window that is closed after Ctrl-C": ([(signal.SIGINT, 0.0), (signal.SIGHUP, 5.0)], 1),
    "kill after a hang-up": ([(signal.SIGHUP, 0.0), (signal.SIGHUP, 5.0), (signal.SIGTERM, 6.0)], 2),
}


@pytest.mark.parametrize(("signals", "wishes"), WISHES.values(), ids=WISHES)
def test_one_wish_may_come_as_two_signals(signals: list[tuple[signal.Signals, float]], wishes: int) -> None:
    """Those that come later are told, those that came before are told again."""
    now, told = [0.0], []
    with Interrupts(lambda: now[0]) as interrupts:
        for number, moment in signals:
            now[0] = moment
            os.kill(os.getpid(), number)
        with interrupts.answering(lambda: told.append(1)):
            interrupts.hung_up()
    assert len(told) == interrupts.count == wishes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_at_the_very_end_does_not_change_the_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("kind: TrainingJob\n")  # it is refused, but only after a whole start
    program = (
        "import atexit, os, sys\nfrom trainmaster.cli.main import main\n"
        f"atexit.register(os.kill, os.getpid(), {number:d})\nsys.exit(main(['run', {str(job)!r}]))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, "apiVersion" in ended.stderr) == (2, True), ended.stderr


def test_ctrl_c_ends_a_script_that_never_ends(command: Command) -> None:
    """SIGTERM reaches it."""
    command.start(a_script(ENDLESS, command.folder), "--output", "text")
    command.until(lambda line: line["text"] == "on and on")
    command.send(signal.SIGINT)
    assert command.end() == 130


INTERRUPTED = """
import signal, subprocess, sys, threading, time
import torch
from torch.utils.data import DataLoader

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, index):
        return time.sleep(0.01) or index

def main():
    child = subprocess.Popen(["sleep", "1000"])
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    try:
        for number, _ in enumerate(DataLoader(Slow(), batch_size=2, num_workers=2)):
            if number == 2:
                print("on and on", flush=True)
    except KeyboardInterrupt:
        with open("saved", "w") as file:
            for _ in range(10):
                file.write("x" * 100)
                time.sleep(0.02)
        print("child", child.poll(), flush=True)
    finally:
        child.kill()

if __name__ == "__main__":
    main()
"""


def test_ctrl_c_is_a_keyboard_interrupt_to_a_script_that_minds_nothing_else(command: Command) -> None:
    """As under plain Python and torchrun. Only the script itself is asked: what it has started still lives."""
    command.start(a_script(INTERRUPTED, command.folder), "--output", "text")
    command.until(lambda line: line["text"] == "on and on")
    command.send(signal.SIGINT)
    assert command.end() == 130
    assert (command.folder / "saved").read_text() == "x" * 1000
    assert "child None" in command.text
    assert "KeyboardInterrupt" not in command.text


def test_a_second_ctrl_c_ends_ranks_that_do_not_listen(command: Command) -> None:
    """At once, long before their grace time is over, and nothing is left."""
    command.start(a_script(STUBBORN, command.folder), "--output", "text", TRAINMASTER_GRACE_SECONDS="3600")
    command.until(lambda line: line["text"] == "on and on")
    command.send(signal.SIGINT)
    command.until(lambda line: "Ctrl-C again" in line["text"])
    time.sleep(1)  # sooner it would be the same wish
    command.send(signal.SIGINT)
    assert command.end() == 130
    assert command.text.count("Ctrl-C again") == 1


def test_ranks_that_do_not_listen_are_killed_after_their_grace_time(command: Command) -> None:
    """Also without a second Ctrl-C."""
    command.start(a_script(STUBBORN, command.folder), "--output", "text", TRAINMASTER_GRACE_SECONDS="1")
    command.until(lambda line: line["text"] == "on and on")
    command.send(signal.SIGTERM)
    assert command.end() == 130


@pytest.mark.parametrize("again", [1, 3], ids=["once", "and again"])
def test_ctrl_c_before_anything_runs_leaves_nothing_either(own_command: Command, again: int) -> None:
    """The warm parent is there first; the signal comes in the middle of the imports."""
    own_command.start(a_job())
    own_command.wait_for_warm_parent()
    for _ in range(again):
        own_command.send(signal.SIGINT)
    assert own_command.end() == 130
    assert "Traceback" not in own_command.stderr


# A signal comes while native code of pydantic imports a module.
INTERRUPTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "datetime" and sys.argv[0].endswith("trainmaster"):
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


def test_ctrl_c_in_the_middle_of_an_import_is_no_crash(own_command: Command) -> None:
    (own_command.folder / "sitecustomize.py").write_text(INTERRUPTING)
    own_command.start(a_job(), PYTHONPATH=str(own_command.folder))
    assert own_command.end() == 130
    assert own_command.stderr == "Stopped before training began.\n"


@pytest.mark.parametrize("is_stopped", [False, True], ids=["that runs", "that is stopped"])
def test_sigkill_of_the_command_ends_everything_and_the_next_run_sweeps(
    own_command: Command, command: Command, is_stopped: bool
) -> None:
    """Agents, warm parent and ranks go by themselves; the next run goes on."""
    own_command.make_gate()
    own_command.start(a_job(arguments=HELD))
    own_command.until_step(24)
    everything = own_command.processes()
    assert len(everything) >= 5
    scratch = own_command.scratch
    if is_stopped:
        for pid in (own_command.warm_parent(), *own_command.agents().values()):
            kill(pid, signal.SIGSTOP)
    own_command.send(signal.SIGKILL)
    assert all(wait_gone(pid) for pid in everything)
    own_command.open_gate()
    assert command.start(a_job(arguments=HELD)).end() == 0
    assert not scratch.exists()
    assert command.status["attempt"] == 2


def test_a_rank_that_was_killed_while_stopping_does_no_harm(command: Command) -> None:
    """Stopped is stopped."""
    command.make_gate()
    command.start(a_job(arguments=HELD))
    command.until_step(24)
    command.send(signal.SIGINT)
    command.until(lambda line: line.get("progress", {}).get("phase") == "Suspended")
    for rank in range(2):
        kill(command.rank_pid(rank), signal.SIGKILL)
    assert command.end() == 130
    assert command.status["phase"] == "Suspended"
