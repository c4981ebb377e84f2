"""Carry out faults on purpose (`trainmaster run --fault`) in the rank concerned, right after the step that was named.

Without the variable, which only a local run with --fault sets, this does nothing.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from trainmaster.wire import faults, names
from trainmaster.wire.faults import Fault
from trainmaster.wire.files import open_to_write

from trainmaster_trainer.checkpoint.layout import saved_steps, step_folder
from trainmaster_trainer.settings import Settings

# `slow`: so many times the time of a step is slept on top of it.
SLOWER_BY = 2.0
# `oom`: how much may still be allocated, and in which pieces.
OOM_BYTES = 256 << 20
OOM_PIECE = 64 << 20


class Faults:
    """Faults holds what is to happen to this rank. `after` is called when a step has ended."""

    def __init__(self, environment: Mapping[str, str], settings: Settings) -> None:
        self._folder = Path(environment.get(names.ENV_FAULTS, ""))
        self._checkpoints = settings.checkpoints
        me = (settings.role, int(environment.get(names.ENV_INDEX, "0")))
        found = [*faults.pending(self._folder)] if environment.get(names.ENV_FAULTS) else []
        mine = [fault for fault in found if (fault.role, fault.index) == me]
        self._pending: list[Fault] = mine if settings.local_rank == 0 else []
        self._corrupting = {fault.step for fault in found if fault.kind == faults.CORRUPT_CHECKPOINT}
        self._slow = False
        self._last = time.monotonic()

    def want_checkpoint(self, step: int) -> bool:
        """Return whether a rank is to change the newest checkpoint after this step, so it must be written before."""
        return step in self._corrupting

    def after(self, step: int) -> None:
        """Carry out the faults for this step."""
        due = [fault for fault in self._pending if fault.step == step]
        for fault in sorted(due, key=lambda fault: fault.kind in _DEADLY):  # after which nothing comes any more
            if fault.kind == faults.CORRUPT_CHECKPOINT:
                faults.claim(fault, self._folder, corrupt_newest(self._checkpoints))
            elif faults.claim(fault, self._folder):
                _ACTS[fault.kind](self)
        if self._slow:
            time.sleep(SLOWER_BY * (time.monotonic() - self._last))
        self._last = time.monotonic()

    def kill(self) -> None:
        """Kill this process, as `kill -9` does."""
        os.kill(os.getpid(), signal.SIGKILL)

    def stop(self) -> None:
        """Stop this process, as `kill -STOP` does."""
        os.kill(os.getpid(), signal.SIGSTOP)

    def oom(self) -> None:
        """Allocate and write memory until there is no more. A limit protects the machine.

        A container's limit kills with SIGKILL; this one makes the allocation fail, as at the end of a GPU's memory.
        """
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + OOM_BYTES, before[1]))
        kept = []
        try:
            while True:
                piece = bytearray(OOM_PIECE)
                ctypes.memset((ctypes.c_char * OOM_PIECE).from_buffer(piece), 1, OOM_PIECE)
                kept.append(piece)
        except MemoryError:
            more = len(kept) * OOM_PIECE >> 20
            kept.clear()
            resource.setrlimit(resource.RLIMIT_AS, before)  # else it could not even say its last words
            raise MemoryError(f"After {more} MiB more there was no memory for this rank (--fault oom).") from None

    def slow(self) -> None:
        """Slow down every step from now on."""
        self._slow = True


def corrupt_newest(checkpoints: Path) -> str:
    """Flip the bits of one byte in the middle of the newest checkpoint's largest file. Return its step, or ""."""
    for step in saved_steps(checkpoints):
        with suppress(OSError):  # pruned meanwhile
            shards = step_folder(checkpoints, step).glob("shard-*")
            sizes = {path.stat().st_size: path for path in shards}
            if sizes:  # else it lies in an object store, and its manifest here
                place = max(sizes) // 2
                with os.fdopen(open_to_write(sizes[max(sizes)], flags=0), "r+b") as file:
                    file.seek(place)
                    byte = file.read(1)[0]
                    file.seek(place)
                    file.write(bytes([byte ^ 0xFF]))
                return str(step)
    return ""


_DEADLY = (faults.OOM, faults.STOP, faults.KILL)
_ACTS: dict[str, Callable[[Faults], None]] = {
    faults.KILL: Faults.kill,
    faults.STOP: Faults.stop,
    faults.OOM: Faults.oom,
    faults.SLOW: Faults.slow,
}
