"""Let processes of one host wait for one another: POSIX semaphores in shared memory lose no wake-up.

libc's semaphores are a counter and a futex, with the memory barriers that other machines than x86 need, which plain
Python has not. `wait` tries for a short while, because a peer on another core is mostly there within microseconds,
and then sleeps in the kernel: spinning on would take the core from the peer that is waited for.

Everything goes through ctypes, which lets other threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import errno
import time
from collections.abc import Callable

SIZE = 64  # a cache line each, and more than libc's sem_t takes anywhere
TRIES = 100  # about 40 microseconds
SLICE_NANOSECONDS = 50_000_000  # how late the death of a peer may be seen

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _function(name: str, *arguments: type) -> Callable[..., int]:
    function = getattr(_libc, name)
    function.argtypes = arguments
    function.restype = ctypes.c_int
    found: Callable[..., int] = function
    return found


_init = _function("sem_init", ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
_post = _function("sem_post", ctypes.c_void_p)
_try_wait = _function("sem_trywait", ctypes.c_void_p)
_timed_wait = _function("sem_timedwait", ctypes.c_void_p, ctypes.POINTER(_Timespec))


class Semaphore:
    """Semaphore is one counter at an address in memory that processes share."""

    def __init__(self, address: int) -> None:
        self._address = address

    def create(self, value: int) -> None:
        """Create the counter with this value, before another process knows of it."""
        _init(self._address, 1, value)

    def post(self) -> None:
        """Count up by one, and wake a process that waits."""
        _post(self._address)

    def wait(self, watch: Callable[[], None]) -> None:
        """Count down by one as soon as that is possible. `watch` is called every 50 ms until then, and may raise."""
        if self.try_wait(TRIES):
            return
        while not self.sleep():
            try:
                watch()
            except Exception:
                if self.try_wait(1):  # a peer counts it up, and may end before we look whether it lives
                    return
                raise

    def try_wait(self, tries: int) -> bool:
        """Count down by one if that is possible within so many tries; return whether it was counted down."""
        return any(not _try_wait(self._address) for _ in range(tries))

    def sleep(self) -> bool:
        """Wait for 50 ms at most to count down by one; return whether it was counted down."""
        # The one clock that sem_timedwait of every libc knows; if it is set back, only the slice is longer.
        until = time.time_ns() + SLICE_NANOSECONDS
        while _timed_wait(self._address, _Timespec(*divmod(until, 1_000_000_000))):
            reason = ctypes.get_errno()
            if reason == errno.ETIMEDOUT:
                return False
            if reason != errno.EINTR:
                raise OSError(reason, "sem_timedwait")
        return True
