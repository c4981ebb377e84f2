"""Let the agent hear of a rank's death before the kernel has given the rank's memory back.

A parent is told of a child's end when all its memory has been given back: 10 ms later with torch, and seconds later
where a process has much, or a GPU's. A robust mutex is let go before that (futex(2), and Documentation/locking/
robust-futexes.rst of the kernel): a rank holds one as long as it lives, at the end of its progress page, and a thread
of the agent waits for it. Where libc or kernel have no such thing, a death is heard of from the warm parent alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import threading
from typing import Callable, List, Optional

from trainmaster.wire.progress_page import LIFELINE_AT, SIZE

_SHARED = _ROBUST = 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST
_READY, _HELD = LIFELINE_AT, LIFELINE_AT + 1  # a byte each: there is a mutex, and the rank has it
_MUTEX = LIFELINE_AT + 64  # a cache line of its own; libc's takes 40 to 48 bytes
_ATTRIBUTES = 64  # more than pthread_mutexattr_t takes anywhere
_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.05, 1.0  # a command that is no Python never holds it
_LIBC = ctypes.CDLL(None)
_OURS: List[Lifeline] = []  # in a rank: mapped as long as it lives


class Lifeline:
    """Lifeline is the mutex in the progress page at `path`, which must be there.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            self._page = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self._mutex = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._page)) + _MUTEX)
        self._dropped = threading.Event()

    def prepare(self) -> None:
        """Make the mutex. The agent does so before the rank is started."""
        attributes = ctypes.create_string_buffer(_ATTRIBUTES)
        with contextlib.suppress(AttributeError):  # not in this libc
            _LIBC.pthread_mutexattr_init(attributes)
            _LIBC.pthread_mutexattr_setpshared(attributes, _SHARED)
            refused = _LIBC.pthread_mutexattr_setrobust(attributes, _ROBUST)
            if not refused and not _LIBC.pthread_mutex_init(self._mutex, attributes):
                self._page[_READY] = 1

    def hold(self) -> None:
        """Take the mutex, for good. The rank's main thread does so."""
        if self._page[_READY] and not _LIBC.pthread_mutex_lock(self._mutex):
            self._page[_HELD] = 1

    def follow(self, say: Callable[[], None]) -> None:
        """Call `say` in a thread when the rank dies. Whatever else lets the mutex go (an exec) calls it as well."""
        threading.Thread(target=self._wait, args=(say,), name="lifeline", daemon=True).start()

    def drop(self) -> None:
        """Stop waiting for this rank."""
        self._dropped.set()

    def _wait(self, say: Callable[[], None]) -> None:
        pause = _LOOK_SECONDS
        while not self._page[_HELD]:
            if self._dropped.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS)
        if _LIBC.pthread_mutex_lock(self._mutex) == errno.EOWNERDEAD and not self._dropped.is_set():
            say()


def prepare(path: str) -> None:
    """Make the lifeline of a rank that is to be started; the rank can do without."""
    with contextlib.suppress(OSError):
        Lifeline(path).prepare()


def hold(path: Optional[str]) -> None:
    """Take the lifeline at `path`, if there is one. A rank's main thread does so."""
    with contextlib.suppress(OSError):
        if path:
            _OURS.append(Lifeline(path))
            _OURS[-1].hold()
