"""Make the few system calls that Python has no function for, and clean a freshly forked child."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import os
import re
import select
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, List, NoReturn, Optional, Tuple

from trainmaster_trainer.agent import teardown

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_STDERR = 2
_PARENT, _FLAGS, _STATUS, _EXITING = 1, 6, 49, 0x4  # fields of /proc/PID/stat behind the name, and PF_EXITING
_TRACKER = re.compile(rb"\0-c\0from [\w.]+\.resource_tracker import main")  # its command line
_NOT_FLUSHED = 120  # how Python ends where its standard output could not be written
_ANY_FILE = io.IOBase.__mro__[1]  # what all files derive from, those in C too
_OOM = Path("/proc/self/oom_score_adj")
_BEFORE: List[str] = []  # what stood there
# Loaded at import: a forked child should not have to look for the C library.
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when `parent` (its parent's pid) ends, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def wake_with_parent() -> None:
    """Have the kernel let this process go on, where it is stopped, when its parent ends: it sees to its end itself.

    This undoes `die_with_parent`.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def rename(name: str) -> None:
    """Set what `top` and `ps -o comm` show: all forked children have the same command line."""
    _LIBC.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def threads() -> int:
    """Return how many threads this process has. A fork takes only one of them along, and no lock that another holds."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def first_to_go() -> None:
    """Make this process the one that the kernel ends first where memory is short: it is merely useful."""
    _BEFORE.append(_OOM.read_text())
    _OOM.write_text("1000")


def as_needed_as_before() -> None:
    """Undo `first_to_go` in a child, which is needed. (Any user may go back to what root once set.)."""
    while _BEFORE:
        _OOM.write_text(_BEFORE.pop())


def wait_for(pids: Collection[int], seconds: float) -> None:
    """Wait for the ends of children, but not for longer than so many seconds."""
    until = time.monotonic() + seconds
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
            os.close(descriptor)


def close_descriptors(keep: Collection[int]) -> None:
    """Close all above stderr but `keep`: a rank must not hold other ranks' pipes and sockets open."""
    for path in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(path.name)
        if descriptor > _STDERR and descriptor not in keep:
            with contextlib.suppress(OSError):  # one of them has listed the folder
                os.close(descriptor)


def fork() -> int:
    """Fork as os.fork does, with all signals blocked in the child: none may meet the parent's handlers there.

    The child calls `default_signals`.

    Raises:
        OSError: there can be no new process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1  # where there can be none
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def kill_group(pid: int, number: int) -> None:
    """Signal `pid` and all that it started, if they are still there.

    SIGKILL is not sent to Python's resource trackers among them: a tracker ends as soon as all have ended that it works
    for, and removes the shared memory and the semaphores that they have left in /dev/shm.
    """
    if number == signal.SIGKILL:
        with contextlib.suppress(OSError):  # no descriptor is left to read /proc with: then it is for all
            if any(_is_tracker(other) for other in _others(pid)):
                _kill_all_but_trackers(pid)
                return
    _signal_group(pid, number)


def _kill_all_but_trackers(group: int) -> None:
    _signal_group(group, signal.SIGSTOP)  # no process can start another one that would not be seen here
    try:
        kill(group, signal.SIGKILL)
        for other in _others(group):
            if not _is_tracker(other):
                kill(other, signal.SIGKILL)
    finally:
        _signal_group(group, signal.SIGCONT)


def all_pids() -> Iterator[int]:
    """Return the numbers of all processes that are there now.

    Raises:
        OSError: no descriptor is left to read /proc with.
    """
    return map(int, filter(str.isdigit, os.listdir("/proc")))  # noqa: PTH208 a Path for each takes its time


def _others(group: int) -> Iterator[int]:
    """Yield a group's processes but for its leader: reading the command line of one that is stuck in a driver hangs.

    A restart waits for this, 0.1 ms where there are a hundred processes.
    """
    for pid in all_pids():
        with contextlib.suppress(OSError):  # it has gone meanwhile
            if pid != group and os.getpgid(pid) == group:
                yield pid


def _is_tracker(pid: int) -> bool:
    """Return whether it is Python's resource tracker (or that of joblib's loky)."""
    with contextlib.suppress(OSError):
        return bool(_TRACKER.search(read_memory(pid, "cmdline")))
    return False


def read_memory(pid: int, name: str) -> bytes:
    """Return a file of /proc/PID that lies in the process's memory: `cmdline` or `environ`.

    It is empty for a process that is stuck in the kernel: reading it could hang as well.

    Raises:
        OSError: there is no such process, or it is somebody else's.
    """
    return b"" if stat(pid)[0] == b"D" else Path(f"/proc/{pid}/{name}").read_bytes()


def stat(pid: int) -> List[bytes]:
    """Return the fields of /proc/PID/stat behind the name, from the state on.

    Raises:
        OSError: there is no such process.
    """
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()


def advise(address: int, length: int, advice: int) -> bool:
    """Call madvise(2) with advice that the mmap module does not know; return False where the kernel refuses."""
    return not _LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), advice)


def end_of(pid: int) -> Optional[int]:
    """Return the status, as `os.waitpid` gives it, of a process that is about to end; None: it is not, or unknown.

    It is known from the moment at which the process begins to end. (The kernel also says 0 to those that may not know.)
    """
    try:
        fields = stat(pid)
    except OSError:
        return None
    return int(fields[_STATUS]) or None if int(fields[_FLAGS]) & _EXITING else None


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        kill(pid, number)  # so young that it has no group of its own yet
    except PermissionError:
        pass  # only a zombie is left of it, on some kernels


def ask_to_end(pid: int, interrupt: bool = False) -> None:
    """Send SIGTERM to `pid`; where it is no Python, also down to the first Python of each branch of its children.

    With `interrupt`, a Python that SIGTERM would simply kill gets SIGINT, which it raises as KeyboardInterrupt.

    A Python program ends what it has started itself, such as the workers of its data loaders, which it still needs in
    order to save. A shell and other programs that merely start a Python program pass no signal on.
    """
    for one, python in down_to_pythons(pid):
        kill(one, signal.SIGINT if interrupt and python and _minds_only_interrupts(one) else signal.SIGTERM)


def down_to_pythons(pid: int) -> Iterator[Tuple[int, bool]]:
    """Yield `pid`, and where it is no Python what it has started, down to the first Python of each branch.

    With each process goes whether it is a Python.
    """
    below = _children_in(pid)
    found = [pid]
    while found:
        one = found.pop()
        python = _is_python(one)
        yield one, python
        if not python:
            found += below.get(one, [])


def _minds_only_interrupts(pid: int) -> bool:
    """Return whether a process has a handler for SIGINT, and neither handles nor ignores SIGTERM."""
    caught, ignored = signal_masks(pid)
    return bool(caught >> (signal.SIGINT - 1) & 1) and not (caught | ignored) >> (signal.SIGTERM - 1) & 1


def signal_masks(pid: int) -> Tuple[int, int]:
    """Return which signals a process has handlers for, and which it ignores: bit 0 is signal 1. 0: it is no more."""
    masks = {"SigCgt": 0, "SigIgn": 0}
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in masks:
                masks[name] = int(value, 16)
    return masks["SigCgt"], masks["SigIgn"]


def _children_in(group: int) -> Dict[int, List[int]]:
    """Return the processes of a group, by their parents."""
    found: Dict[int, List[int]] = {}
    with contextlib.suppress(OSError):  # no descriptor is left to read /proc with
        for pid in _others(group):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has gone meanwhile
                found.setdefault(int(stat(pid)[_PARENT]), []).append(pid)
    return found


def _is_python(pid: int) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name.startswith(("python", "pypy"))  # noqa: PTH115
    except OSError:
        return True  # it has gone, or hides what it is: nothing below it is asked


def kill(pid: int, number: int) -> None:
    """Signal `pid` alone, if it is still there, and ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def leave(exit_code: int, patience: Optional[float] = None) -> NoReturn:
    """End this process as Python would, but for taking apart what the warm parent had imported.

    Threads are joined, exit functions run, the program's own modules taken apart, files written. With `patience`,
    threads that go on for more seconds than that are left where they are.
    """
    if patience is None or _ended(patience):
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 as multiprocessing does
    with contextlib.suppress(BaseException):  # shown already; older Pythons raise the last one
        atexit._run_exitfuncs()  # noqa: SLF001 there is no other way to call them before os._exit
    exit_code = exit_code if _flush_streams() else _NOT_FLUSHED
    teardown.take_apart()
    for thing in gc.get_objects():  # the parent's are frozen, and not among them
        # Not by isinstance: native types of a module that was taken apart (jaxlib's) may be empty by now.
        if _ANY_FILE in (type(thing).__mro__ or ()):
            _flush(thing)
    _flush_streams()
    _LIBC.fflush(None)
    os._exit(exit_code)


def _ended(patience: float) -> bool:
    """Return whether all threads that an interpreter waits for have ended in time; tell on stderr which have not."""
    until = time.monotonic() + patience
    # Idle threads of a ThreadPoolExecutor end at such a call only; it may wait for busy ones, so not here.
    threading.Thread(target=_end_pools, daemon=True).start()
    others = [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, until - time.monotonic()))
    late = [thread.name for thread in others if thread.is_alive()]
    if late:
        sys.stderr.write(f"trainmaster: the work is done, so threads that still run are left: {', '.join(late)}\n")
    return not late


def _end_pools() -> None:
    """Do what an interpreter does before it waits for threads (`threading._register_atexit`)."""
    for call in reversed(threading._threading_atexits):  # type: ignore[attr-defined]  # noqa: SLF001
        call()


def _flush_streams() -> bool:
    """Write out what was printed; return whether that could be done, or nothing can be printed any more."""
    written = [_flush(stream) for stream in (sys.stdout, sys.stderr) if stream is not None]
    return all(written)


def _flush(file: Any) -> bool:
    try:
        if not file.closed:
            file.flush()
    except Exception:  # noqa: BLE001 a broken file of the user's must not keep the others from being written
        return False
    return True


def default_signals() -> None:
    """Set Python's own handlers and block nothing, as in a process that was started afresh."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
