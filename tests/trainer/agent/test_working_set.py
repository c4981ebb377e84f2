"""Pages that a rank needed copies of, copied ahead in the next one: what is in them is the parent's."""

from __future__ import annotations

import mmap
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np  # noqa: F401 as in the process that ranks are forked from
import pytest
from trainmaster_trainer.agent import memory_left, working_set

SIZE = 4 << 20
PAGES = range(0, SIZE, mmap.PAGESIZE)
WRITTEN = [page for number, page in enumerate(PAGES) if number % 8 < 3]


@pytest.fixture
def area() -> mmap.mmap:
    """Memory that children share with this process until somebody writes to it."""
    made = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    made.madvise(mmap.MADV_NOHUGEPAGE)
    for page in PAGES:
        made[page : page + 8] = page.to_bytes(8, "little")
    return made


@contextmanager
def a_child(work: Callable[[], bytes]) -> Iterator[tuple[int, bytes]]:
    """Its pid and what it answers; it lives until the block is left."""
    there, here = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"it raised"
        try:
            answer = work()
        finally:
            os.write(here, answer)
            signal.pause()
    os.close(here)
    try:
        yield pid, os.read(there, 4096)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(there)


def write_to(area: mmap.mmap) -> bytes:
    for page in WRITTEN:
        area[page + 8] = 1
    return b"written"


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def faults_of_a_successor(area: mmap.mmap, pid: int) -> int:
    """How often one that stood by beside `pid` stops for a page when it does the same."""
    pages = working_set.of_rank(pid)

    def stand_by() -> bytes:
        working_set.copy(pages)
        unchanged = all(bytes(area[page : page + 9]) == page.to_bytes(9, "little") for page in PAGES)
        before = faults()
        write_to(area)
        return str(faults() - before).encode() if unchanged else b"it has the other one's"

    with a_child(stand_by) as (_, answer):
        return int(answer)


def test_what_a_rank_wrote_to_is_the_next_ones_before_it_writes(area: mmap.mmap) -> None:
    with a_child(lambda: write_to(area)) as (pid, _):
        assert faults_of_a_successor(area, pid) < len(WRITTEN) // 4
    with a_child(lambda: b"nothing") as (pid, _):
        assert faults_of_a_successor(area, pid) >= len(WRITTEN), "of one that has written nothing"


def test_nothing_is_copied_where_little_memory_is_left(area: mmap.mmap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_left, "memory_left", lambda: [1 << 40, SIZE])
    with a_child(lambda: write_to(area)) as (pid, _):
        assert faults_of_a_successor(area, pid) >= len(WRITTEN)


def test_nor_by_a_kernel_that_cannot(area: mmap.mmap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_set, "_POPULATE_WRITE", 9999)
    with a_child(lambda: write_to(area)) as (pid, _):
        assert faults_of_a_successor(area, pid) >= len(WRITTEN)


def test_one_that_has_ended_is_nobodys_example(area: mmap.mmap) -> None:
    with a_child(lambda: write_to(area)) as (pid, _):
        pass
    assert faults_of_a_successor(area, pid) >= len(WRITTEN)


def test_what_is_large_is_data_of_its_own(area: mmap.mmap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_set, "_MOST_BYTES", len(WRITTEN) * mmap.PAGESIZE)
    with a_child(lambda: write_to(area)) as (pid, _):
        assert working_set.of_rank(pid) == []
