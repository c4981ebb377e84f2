"""How a death is heard of before the process has been reaped, and what is no death."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
from trainmaster_trainer.agent import process, rank_death

HOLDING = """
import os, sys, time
from trainmaster_trainer.agent import rank_death
rank_death.hold(sys.argv[1])
print("held", flush=True)
exec(sys.argv[2])
"""
SLEEPING = "time.sleep(1000)"
IN_A_THREAD = f"import threading; threading.Thread(target=lambda: {SLEEPING}).start(); {SLEEPING}"
OTHERS = "os.fork() or os._exit(0); os.wait(); sys.stdin.read(1); os._exit(3)"  # a child's end says nothing
INSTEAD = "sys.stdin.read(1); os.execlp('sleep', 'sleep', '1000')"


class Holder:
    """A process that holds its lifeline, and what is heard of it."""

    def __init__(self, page: Path, code: str) -> None:
        ProgressFile(str(page), create=True).close()
        rank_death.prepare(str(page))
        self.line = rank_death.Lifeline(str(page))
        self.heard: queue.Queue[int | None] = queue.Queue()
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", HOLDING, str(page), code], stdin=pipe, stdout=pipe)
        self.line.follow(lambda: self.heard.put(process.end_of(self.process.pid)))
        assert self.process.stdout is not None
        assert self.process.stdout.read(5) == b"held\n"

    def go_on(self) -> None:
        """Have it do what it waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write(b".")
        self.process.stdin.flush()

    def close(self) -> None:
        """End it."""
        self.line.drop()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def holder(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Holder]:
    def make(code: str) -> Holder:
        made = Holder(tmp_path / "page", code)
        request.addfinalizer(made.close)
        return made

    return make


@pytest.mark.parametrize("code", [SLEEPING, IN_A_THREAD], ids=["one thread", "two threads"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_death_by_a_signal_is_heard_of_and_how(holder: Callable[[str], Holder], code: str, number: int) -> None:
    """Nobody reaps it before."""
    one = holder(code)
    os.kill(one.process.pid, number)
    status = one.heard.get(timeout=200)
    assert status is not None
    assert os.WTERMSIG(status) == number


def test_an_exit_is_heard_of_with_its_code(holder: Callable[[str], Holder]) -> None:
    one = holder(OTHERS)
    assert one.heard.empty()
    one.go_on()
    status = one.heard.get(timeout=200)
    assert status is not None
    assert os.WEXITSTATUS(status) == 3


def test_another_program_in_the_same_process_is_no_end(holder: Callable[[str], Holder]) -> None:
    one = holder(INSTEAD)
    one.go_on()
    assert one.heard.get(timeout=200) is None


def test_nobody_is_told_of_one_that_nobody_waits_for(holder: Callable[[str], Holder]) -> None:
    one = holder(SLEEPING)
    one.line.drop()
    one.process.kill()
    one.process.wait()
    with pytest.raises(queue.Empty):
        one.heard.get(timeout=0.3)


def test_a_process_that_has_not_ended_or_has_gone_has_no_status() -> None:
    assert process.end_of(os.getpid()) is None
    child = subprocess.Popen(["/bin/true"])
    child.wait()
    assert process.end_of(child.pid) is None


def test_the_page_is_what_it_was(tmp_path: Path) -> None:
    """And one who finds no page, or none that was prepared, does without."""
    path = str(tmp_path / "page")
    file = ProgressFile(path, create=True)
    file.write(ProgressPage(step=7, phase="train"))
    file.write_problem(5, "x" * 5000)
    rank_death.hold(path)
    rank_death.prepare(path)
    rank_death.hold(path)
    assert (file.read().step, file.read_problem()) == (7, (5, "x" * 2000))
    rank_death.hold(None)
    rank_death.hold(str(tmp_path / "none"))
