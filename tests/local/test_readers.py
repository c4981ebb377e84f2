"""Who reads what `trainmaster run` prints, or does not: slowly, never, or no longer."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from trainmaster.cli.process_output import ProcessOutput, ProcessOutputs

from tests.local.command import PATIENCE, Command, a_job, a_script, kill

CHATTY = """
import os
from pathlib import Path
print("more than any pipe holds\\n" * 40_000, flush=True)
Path("told").write_text(f"{os.getpid()}\\n")
Path("gate").read_text()
"""


def read_line(pipe: Path) -> str:
    """What the next writer says."""
    with os.fdopen(os.open(pipe, os.O_RDWR), "rb", buffering=0) as file:
        assert select.select([file], [], [], PATIENCE)[0], "nobody said anything"
        return file.read(100).decode()


def a_narrow_pipe() -> tuple[int, int]:
    """Of one page."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    return reader, writer


@pytest.mark.parametrize("to", ["> unread", "> unread 2>&1"], ids=["standard output", "both"])
def test_a_pipe_that_nobody_empties_holds_up_neither_restarts_nor_ctrl_c(command: Command, to: str) -> None:
    """As `trainmaster run job.yaml | less`, left at its first page."""
    for name in ("unread", "told"):
        os.mkfifo(command.folder / name)
    unread = os.open(command.folder / "unread", os.O_RDWR)
    command.make_gate()
    into_it = ("sh", "-c", f'exec "$@" {to}', "sh")
    command.start(a_script(CHATTY, command.folder), "--output", "text", prefix=into_it)
    kill(int(read_line(command.folder / "told")), signal.SIGKILL)
    read_line(command.folder / "told")  # it was restarted
    command.send(signal.SIGINT)
    assert command.end() == 130
    os.close(unread)
    assert command.status["restartCount"] == 1
    if to == "> unread":
        missing, last = command.stderr.splitlines()
        assert re.fullmatch(r"Lines of the output are missing \(\d+\): nobody read them\.", missing)
        assert last.startswith("Go on with: trainmaster run")


def test_lines_without_room_are_dropped_whole_and_counted() -> None:
    """Those that had room come, however late they are read."""
    reader, writer = a_narrow_pipe()
    process_output = ProcessOutput(writer, room=10_000, patience_seconds=0)
    lines = [f"{number:03} {'x' * 995}\n".encode() for number in range(100)]
    for line in lines:
        process_output.write(line)
        process_output.flush()
    kept = 100 - process_output.lost_lines
    assert 10 <= kept <= 20, "what there is room for, in the pipe and before it"
    with os.fdopen(reader, "rb") as file:
        assert all(file.read(1000) in lines for _ in range(kept))
    os.close(writer)


def test_at_the_end_a_slow_reader_is_waited_for() -> None:
    """Also one that has read nothing for so long that lines were dropped meanwhile."""
    reader, writer = a_narrow_pipe()
    process_output = ProcessOutput(writer, room=10_000, patience_seconds=0)
    while not process_output.lost_lines:
        process_output.write(b"x" * 999 + b"\n")
        process_output.flush()
    with os.fdopen(reader, "rb") as file:
        late = threading.Timer(0.2, file.read, [10_000])
        late.start()
        process_output.drain(None)
        late.join()
    assert process_output.lost_lines == 1
    os.close(writer)


def test_no_thread_is_left_that_python_would_have_to_stop(capfd: pytest.CaptureFixture[str]) -> None:
    """It opens a library for that, and where no file can be opened it aborts the process."""
    before = set(threading.enumerate())
    with ProcessOutputs():
        sys.stdout.write("the last words\n")
    assert set(threading.enumerate()) <= before
    assert capfd.readouterr().out == "the last words\n"


def test_who_reads_nothing_at_the_end_is_waited_for_until_somebody_ends_it(command: Command) -> None:
    """The last line comes when it is read, as from any program; a signal says that nobody will."""
    os.mkfifo(command.folder / "unread")
    unread = os.open(command.folder / "unread", os.O_RDWR)
    into_it = ("sh", "-c", 'exec "$@" > unread', "sh")
    text = "print('more than any pipe holds\\n' * 40_000, flush=True)"
    command.start(a_script(text, command.folder), "--output", "text", prefix=into_it)
    while not (command.workdir / "status.json").exists() or command.status["phase"] != "Succeeded":
        time.sleep(0.1)
    command.send(signal.SIGTERM)
    assert command.end() == 0
    os.close(unread)
    assert re.fullmatch(r"Lines of the output are missing \(\d+\): nobody read them\.\n", command.stderr)


def test_a_reader_that_goes_away_stops_the_run(command: Command) -> None:
    """As `trainmaster run ... | head -1` would, long before the last step."""
    command.make_gate()
    command.start(a_job(1_000_000, arguments={"hold_at": 21}), "--output", "text", TRAINMASTER_GRACE_SECONDS="1")
    command.until(lambda line: line["text"].startswith("running  step "))
    assert command.process.stdout is not None
    command.hang_up()
    command.open_gate()
    assert command.process.wait(200) != 0
    assert "Nobody reads the output (broken pipe); the run was stopped." in command.stderr
    assert "Traceback" not in command.stderr


def test_a_log_on_a_full_disk_costs_lines_and_no_training(command: Command) -> None:
    """As `nohup trainmaster run job.yaml > run.log`; it is said where it still can be."""
    to_a_full_disk = ("sh", "-c", 'exec "$@" > /dev/full', "sh")
    assert command.start(a_job(), "--output", "text", prefix=to_a_full_disk).end() == 0
    assert re.fullmatch(r"Lines of the output are missing \(\d+\): no space left on device\.\n", command.stderr)
    assert command.status["progress"]["step"] == 40


def test_a_pipe_that_does_not_block_gets_every_line(command: Command) -> None:
    """That of Node, and of CI runners upon it: its reader is slower than we are."""
    small = f"fcntl.fcntl(1, {fcntl.F_SETPIPE_SZ}, 4096); os.set_blocking(1, False)"
    node = (sys.executable, "-c", f"import fcntl, os, sys; {small}; os.execv(sys.argv[1], sys.argv[1:])")
    text = "for number in range(9): print(number, 'x' * 60000, flush=True)"
    assert command.start(a_script(text, command.folder), "--output", "text", prefix=node).end() == 0
    lines = command.text.splitlines()
    assert [line[0] for line in lines if line.endswith("x" * 60000)] == [*"012345678"]
    assert command.stderr == ""


def test_nothing_to_write_to_is_no_error(command: Command) -> None:
    """Who wants to see nothing may close standard output."""
    closed = ("sh", "-c", 'exec "$@" >&-', "sh")
    assert command.start(a_job(workers=1), "--output", "text", prefix=closed).end() == 0
    assert command.stderr == ""
