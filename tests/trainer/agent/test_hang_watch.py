"""Who hangs, as a watch finds out that looks at real processes and asks them for their stacks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from trainmaster.wire import names
from trainmaster.wire.progress_page import ProgressFile
from trainmaster_trainer.agent import agent_settings, any_python, supervise
from trainmaster_trainer.agent.attempt_files import Files
from trainmaster_trainer.agent.hang_watch import HangWatch
from trainmaster_trainer.agent.hangs import Policy
from trainmaster_trainer.agent.reactor import Reactor
from trainmaster_trainer.agent.supervise import RanksHung

from tests.trainer.agent.machine import SCRIPTS
from tests.trainer.agent.test_hangs import page
from tests.trainer.agent.test_settings import COMPLETE
from tests.trainer.agent.test_stacks import IN_GLOO


def test_a_late_answer_leaves_the_last_one_in_force(tmp_path: Path) -> None:
    """A rank that waits for a peer's save, and is too busy to answer each time, or in one piece."""
    answers = [IN_GLOO, "", IN_GLOO[: len(IN_GLOO) // 2]]
    files = Files(agent_settings.read({**COMPLETE, names.ENV_SCRATCH: str(tmp_path)}))
    files.begin(1, range(1), b"{}")
    command = [sys.executable, str(SCRIPTS / "asked.py"), str(files.stacks(0)), *answers]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"ready\n"
        reactor, happened = Reactor(), list[object]()

        def happen(what: object) -> None:
            happened.append(what)
            reactor.stop()

        progress = ProgressFile(str(files.progress(0)))
        for number, now in enumerate(
            (page(step=49), page(), page(phase="save"), page())
        ):  # it is through with its part
            reactor.after(0.5 * number, partial(progress.write, now))
        watch = HangWatch(reactor, Beside(files, rank.pid), lambda _: None, happen)  # type: ignore[arg-type]
        watch.expect(1, Policy(fixed=1.0))
        reactor.watch(rank.stdout.fileno(), lambda: happen("all answers are given"))
        reactor.after(100.0, lambda: happen("it was not asked"))
        reactor.run()
        rank.kill()
    assert happened == ["all answers are given"]


@pytest.mark.parametrize("ends", [True, False])
def test_the_process_that_takes_the_steps_is_asked_and_nobody_once_it_has_ended(tmp_path: Path, ends: bool) -> None:
    """The rank's own is a shell, say, which may do anything after its program."""
    files = Files(agent_settings.read({**COMPLETE, names.ENV_SCRATCH: str(tmp_path)}))
    files.begin(1, range(1), b"{}")
    reactor, happened = Reactor(), list[object]()

    def happen(what: object) -> None:
        happened.append(what)
        reactor.stop()

    command = [sys.executable, str(SCRIPTS / "asked.py"), str(files.stacks(0)), *([] if ends else [IN_GLOO])]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        progress = ProgressFile(str(files.progress(0)))
        assert progress.claim(program.pid)
        for number in range(5):
            reactor.after(0.2 * number, partial(progress.write, page(step=number)))
        if ends:
            program.kill()
            program.wait()
            reactor.after(2.0, lambda: happen("it is left alone"))
        watch = HangWatch(reactor, Beside(files, os.getpid()), lambda _: None, happen)  # type: ignore[arg-type]
        watch.expect(1, Policy(fixed=0.3))
        reactor.run()
        program.kill()
    (what,) = happened
    assert what == "it is left alone" if ends else isinstance(what, RanksHung) and what.report.waiting


HANGS = """
import sys, time
print("ready", flush=True)
if sys.argv[1] == "0":
    exec(compile("time.sleep(600)", "/site-packages/torch/distributed/distributed_c10d.py", "exec"))
def loop():
    time.sleep(600)
loop()
"""


@pytest.mark.parametrize("shell", ["bash -c", "env nice sh -c", "unprepared"])
def test_below_a_shell_the_culprit_is_named_and_without_stacks_nobody_for_sure(tmp_path: Path, shell: str) -> None:
    """The first Python below the rank's own process is asked. One that obeys no variables gives no stacks."""
    (tmp_path / "hang.py").write_text(HANGS)
    files = Files(agent_settings.read({**COMPLETE, names.ENV_SCRATCH: str(tmp_path)}))
    files.begin(1, range(2), b"{}")
    environment = {**os.environ}
    any_python.prepare(environment, 2)
    words = ["sh", "-c"] if shell == "unprepared" else shell.split()
    python = f"{sys.executable} {'-E' if shell == 'unprepared' else ''}"
    reactor, happened = Reactor(), list[supervise.Event]()

    def happen(what: supervise.Event) -> None:
        happened.append(what)
        reactor.stop()

    ranks = [
        subprocess.Popen(
            [*words, f"{python} -m hang {rank}; true"],
            cwd=tmp_path,
            env={**environment, names.ENV_STACKS_FILE: str(files.stacks(rank))},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == b"ready\n"
        for number in range(2):
            progress = ProgressFile(str(files.progress(number)))
            for step in range(3):
                reactor.after(0.3 * step, partial(progress.write, page(step=step)))
        beside = Beside(files, *(rank.pid for rank in ranks))
        watch = HangWatch(reactor, beside, lambda _: None, happen)  # type: ignore[arg-type]
        watch.expect(1, Policy(fixed=1.0))
        reactor.run()
        assert [rank.poll() for rank in ranks] == [None, None], "who has no handler for the signal is not sent it"
    finally:
        for rank in ranks:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.communicate()
    (what,) = happened
    assert isinstance(what, RanksHung)
    assert (error := what.report.error) is not None
    if shell == "unprepared":
        assert "no Python stack could be had of it, nor of rank 1, so each of them" in error.message
    else:
        assert (what.report.rank, "in loop" in error.frame) == (1, True)


class Beside:
    """What a watch looks at: files of ranks and their processes."""

    def __init__(self, files: Files, *processes: int) -> None:
        self.files, self.processes = files, processes

    def pids(self) -> dict[int, int]:
        """The process of each rank."""
        return dict(enumerate(self.processes))
