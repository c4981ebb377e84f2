"""The memory of the warm parent in huge pages: nothing of it changes, and none is taken that others need."""

from __future__ import annotations

import ctypes
import mmap
import time
from pathlib import Path

import pytest
from trainmaster_trainer.agent import huge_pages, memory_left
from trainmaster_trainer.agent.huge_pages import HugePages

SIZE = 32 << 20


@pytest.fixture
def area() -> mmap.mmap:
    """Memory of our own in small pages, in use, with something in each page."""
    made = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    made.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(0, SIZE, mmap.PAGESIZE):
        made[page : page + 8] = page.to_bytes(8, "little")
    made.madvise(mmap.MADV_HUGEPAGE)
    return made


def address_of(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def in_huge_pages(address: int) -> int:
    """Bytes, of the mapping that has this address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        begin, dash, rest = line.split(" ")[0].partition("-")
        if dash:
            inside = int(begin, 16) <= address < int(rest, 16)
        elif inside and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) << 10
    raise AssertionError("there is no such mapping")


def test_memory_is_moved_and_stays_what_it_was(area: mmap.mmap) -> None:
    """The kernel may be short of huge pages just then: it is asked until it has some, a minute at most."""
    for _ in range(60):
        pages, taken = HugePages(), 0
        while not pages.done:
            pages.take_one()
            taken += 1
        assert taken > SIZE // huge_pages._PIECE, "a piece at a time"
        if in_huge_pages(address_of(area)) >= SIZE - 2 * huge_pages._HUGE:
            break
        time.sleep(1.0)
    assert pages.of_use, "Linux has this since 6.1"
    assert in_huge_pages(address_of(area)) >= SIZE - 2 * huge_pages._HUGE
    numbers = [int.from_bytes(area[page : page + 8], "little") for page in range(0, SIZE, mmap.PAGESIZE)]
    assert numbers == list(range(0, SIZE, mmap.PAGESIZE))


def test_none_is_taken_where_little_is_left(area: mmap.mmap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children keep the old pages: for a while there are both."""
    monkeypatch.setattr(memory_left, "memory_left", lambda: [1 << 40, 2 * SIZE])
    before = in_huge_pages(address_of(area))
    pages = HugePages()
    pages.take_one()
    assert (pages.done, pages.of_use, in_huge_pages(address_of(area))) == (True, False, before)


def test_a_kernel_that_cannot_changes_nothing(area: mmap.mmap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_COLLAPSE", 9999)
    pages = HugePages()
    while not pages.done:
        pages.take_one()
    assert not pages.of_use
    assert area[:8] == bytes(8)
