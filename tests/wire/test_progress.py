"""The progress page: a rank writes without a lock, an agent reads at will, and a rank may die at any moment."""

import itertools
import os
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.wire.messages import CheckpointRecord, Evaluation, Figures
from trainmaster.wire.progress_page import ProgressFile, ProgressPage

PAGE = ProgressPage(7, 0.5, 1000.0, 0.01, 123.0, "save", 5, 3, 0.008, 2.5, 0.2, start_seconds=4.5)
# Writes as fast as it can; every number of a page is the same.
BUSY_RANK = """
import sys
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
file, number = ProgressFile(sys.argv[1]), 0
while True:
    number += 1
    file.write(ProgressPage(number, number, number, number, number, "train", number))
    if number == 1:
        print("up", flush=True)
"""
READS = 200_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the page is."""
    return str(tmp_path / "progress")


def busy_rank(path: str) -> subprocess.Popen[str]:
    """A process that has begun to write."""
    rank = subprocess.Popen([sys.executable, "-c", BUSY_RANK, path], stdout=subprocess.PIPE, text=True)
    assert rank.stdout
    assert rank.stdout.readline() == "up\n"
    return rank


def is_whole(page: ProgressPage) -> bool:
    """All numbers are of one write."""
    numbers = {page.step, page.loss, page.samples_per_second, page.step_seconds, page.updated, page.checkpoint_step}
    return len(numbers) == 1


def test_what_is_written_is_read(path: str) -> None:
    agent, rank = ProgressFile(path, create=True), ProgressFile(path)
    assert agent.read().step == 0
    assert agent.read().phase == "load"
    rank.write(PAGE)
    assert agent.read() == PAGE


def test_figures_are_read_whole_or_not_at_all(path: str) -> None:
    agent, rank = ProgressFile(path, create=True), ProgressFile(path)
    assert agent.read_figures() is None
    figures = Figures({"error": 0.5, "odd": None}, Evaluation(7, {"accuracy": 1.0}, 5, "It is good enough."))
    rank.write(PAGE)
    assert rank.write_figures(figures)
    assert agent.read_figures() == figures
    assert not rank.write_figures(Figures({"x" * 5000: 1.0})), "there is no room for it"
    assert agent.read_figures() == figures
    assert agent.read() == PAGE


@given(st.binary(min_size=8, max_size=200))
def test_whatever_lies_in_the_place_of_figures_is_read_or_left_out(tmp_path_factory: Any, data: bytes) -> None:
    path = str(tmp_path_factory.getbasetemp() / "any-figures")
    page = ProgressFile(path, create=True)
    with Path(path).open("r+b") as file:
        file.seek(4096)
        file.write(struct.pack("<II", zlib.crc32(data), len(data)) + data)
    assert page.read_figures() is None or isinstance(page.read_figures(), Figures)


def test_steps_beyond_32_bits_have_room(path: str) -> None:
    page = ProgressFile(path, create=True)
    page.write(ProgressPage(step=1 << 40, checkpoint_step=1 << 40, resumed_step=1 << 40))
    told = page.read()
    assert (told.step, told.checkpoint_step, told.resumed_step) == (1 << 40, 1 << 40, 1 << 40)
    page.close()


def test_a_page_says_to_which_attempt_and_start_it_belongs(path: str) -> None:
    """Whoever made it says so once; what its rank writes leaves that alone."""
    agent = ProgressFile(path, create=True, attempt=3, start=2)
    ProgressFile(path).write(PAGE)
    assert agent.read() == PAGE._replace(attempt=3, start=2)


def test_a_problem_with_a_save_stands_beside_the_page(path: str) -> None:
    agent, rank, saver = ProgressFile(path, create=True), ProgressFile(path), ProgressFile(path)
    assert agent.read_problem() == (0, "")
    saver.write_problem(20, "no space: ä")
    rank.write(PAGE)
    assert (agent.read(), agent.read_problem()) == (PAGE, (20, "no space: ä"))
    saver.write_problem(30, "x" * 10_000)
    assert agent.read_problem() == (30, "x" * 2000)
    saver.write_problem(40, "")
    assert agent.read_problem() == (0, "")


def test_half_a_problem_is_none(path: str) -> None:
    ProgressFile(path, create=True).write_problem(20, "no space")
    with Path(path).open("r+b") as page:
        page.seek(1024 + 16 + 3)
        page.write(b"?")
    assert ProgressFile(path).read_problem() == (0, "")


def test_the_record_of_a_checkpoint_stands_beside_the_page(path: str) -> None:
    agent, rank, saver = ProgressFile(path, create=True), ProgressFile(path), ProgressFile(path)
    assert agent.read_checkpoint() is None
    for record in (CheckpointRecord(20, 1.5e9, "5a" * 32, 0.25), CheckpointRecord(1 << 40, 1.5e9, "6b" * 32)):
        saver.write_checkpoint(record)
        rank.write(PAGE)
        saver.write_problem(30, "x" * 10_000)
        assert (agent.read(), agent.read_checkpoint()) == (PAGE, record)
    with Path(path).open("r+b") as page:
        page.seek(3072 + 10)
        page.write(b"?")
    assert agent.read_checkpoint() is None, "half a record"


@pytest.mark.parametrize(
    ("page", "overdue"),
    [
        (ProgressPage(step=7, step_seconds=2.0, updated=100.0, phase="train"), 8.0),
        (ProgressPage(step=7, step_seconds=12.0, updated=100.0, phase="train"), 0.0),
        (ProgressPage(step=7, step_seconds=2.0, updated=100.0, phase="save"), None),
        (ProgressPage(updated=100.0, phase="train"), None),
    ],
)
def test_a_step_is_overdue_when_it_takes_longer_than_steps_do(page: ProgressPage, overdue: float | None) -> None:
    assert page.overdue_seconds(now=110.0) == overdue


def test_an_attempt_begins_with_an_empty_page(path: str) -> None:
    ProgressFile(path, create=True).write(PAGE)
    assert ProgressFile(path, create=True).read().step == 0


def test_a_file_that_is_not_there_is_not_made_by_the_rank(path: str) -> None:
    with pytest.raises(FileNotFoundError):
        ProgressFile(path)


def test_only_the_owner_may_read_it(path: str) -> None:
    ProgressFile(path, create=True)
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_a_page_that_somebody_spoilt_is_still_read(path: str) -> None:
    agent = ProgressFile(path, create=True)
    Path(path).write_bytes(os.urandom(4096))
    assert agent.read().phase in ("load", "train", "save", "evaluate", "done")


@pytest.mark.parametrize("written", [1, 2, 3])
def test_half_a_write_leaves_the_page_before(path: str, written: int) -> None:
    """As a rank leaves it that dies, or is put to sleep, before it counts: whichever copy it was in."""
    agent, rank = ProgressFile(path, create=True), ProgressFile(path)
    for step in range(1, written + 1):
        rank.write(PAGE._replace(step=step))
    counter = Path(path).read_bytes()[:8]
    rank.write(PAGE._replace(step=99))
    with Path(path).open("r+b") as file:
        file.write(counter)
    assert agent.read().step == written


def test_a_rank_that_is_killed_in_mid_write_leaves_a_page_to_read(path: str) -> None:
    agent = ProgressFile(path, create=True)
    for _ in range(5):
        rank = busy_rank(path)
        rank.send_signal(signal.SIGKILL)
        rank.wait()
        assert is_whole(agent.read())


def test_a_reader_never_sees_half_a_write(path: str) -> None:
    agent, rank = ProgressFile(path, create=True), busy_rank(path)
    try:
        pages = [agent.read() for _ in range(READS)]
    finally:
        rank.kill()
        rank.wait()
    assert all(is_whole(page) for page in pages)
    assert all(before.step <= after.step for before, after in itertools.pairwise(pages))


def test_a_second_writer_goes_on_counting(path: str) -> None:
    ProgressFile(path, create=True).write(PAGE)
    (before,) = struct.unpack_from("<Q", Path(path).read_bytes())
    ProgressFile(path).write(PAGE)
    (after,) = struct.unpack_from("<Q", Path(path).read_bytes())
    assert after > before


def test_without_room_for_a_page_there_is_an_error(tmp_path: Path) -> None:
    """And no SIGBUS at the first write into it. A file system of its own, in namespaces of its own."""
    page = str(tmp_path / "page")
    create = f"from trainmaster.wire.progress_page import ProgressFile; ProgressFile({page!r}, create=True)"
    full = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} && head -c 65536 /dev/zero > {tmp_path}/ballast"
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{full}; exec {sys.executable} -c "{create}"']
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "No space left on device" in ended.stderr


def test_who_has_something_to_say_takes_the_page_from_who_only_counts(tmp_path: Path) -> None:
    """And nobody from one that says something, until it has ended."""
    path = str(tmp_path / "page")
    page, alive, ended = ProgressFile(path, create=True), os.getppid(), 2**22 + 1
    assert page.claim(alive, only_counts=True)
    assert not page.claim(os.getpid(), only_counts=True)
    assert page.claim(os.getpid())
    assert page.writer == os.getpid()
    assert not page.claim(alive)
    assert page.claim(os.getpid())
    ProgressFile(path, create=True)
    assert page.writer == 0
    assert page.claim(ended)
    assert page.claim(alive, only_counts=True)
