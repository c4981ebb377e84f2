"""Get Python stacks of ranks, also of those stuck in C code: a signal asks for them, `faulthandler` writes them.

Ranks listen (`stack_signal`), `hang_watch` asks and reads. The handler is C and needs no lock of the interpreter, so it
answers where Python code does not. What a stack says of a rank that ends no step is a table here.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Collection, FrozenSet, List, Tuple

from trainmaster_trainer.agent import process, stack_signal

# What a rank is at that ends no step, read off its innermost frame.
OUTSIDE = "outside"  # the user's code, or anything else that is no collective: the likely culprit
WAITING = "waiting"  # for peers: a victim, or part of a deadlock
SAVING = "saving"  # waits for storage
COMPILING = "compiling"  # or importing
UNKNOWN = "unknown"  # no stack could be had

# Folders and files of the innermost frame. First match counts.
_TABLE = (
    ("/torch/distributed/checkpoint/", SAVING),
    ("/torch/serialization.py", SAVING),
    ("/trainmaster_trainer/checkpoint/neighbours.py", WAITING),
    ("/trainmaster_trainer/checkpoint/", SAVING),
    ("/trainmaster_trainer/metrics.py", SAVING),
    ("/torch/distributed/", WAITING),
    ("/torch/nn/parallel/distributed.py", WAITING),
    ("/torch/autograd/graph.py", WAITING),  # DDP waits for its last buckets in the backward pass
    ("/trainmaster_trainer/group.py", WAITING),
    ("/trainmaster_trainer/scripts/meeting.py", WAITING),
    ("/trainmaster_trainer/collectives/", WAITING),
    ("/trainmaster_trainer/transport/", WAITING),
    ("/torch/_dynamo/", COMPILING),
    ("/torch/_inductor/", COMPILING),
    ("/torch/_functorch/", COMPILING),
    ("/triton/", COMPILING),
    ("<frozen importlib", COMPILING),
)
# Whatever the compiler calls (torch.fx, sympy, the model itself) is compiling too. What merely runs compiled code
# has other frames.
_COMPILERS = ("/torch/_dynamo/convert_frame.py", "/torch/_inductor/compile_fx.py")
# What a snapshot calls (state_dict() of a script's own objects, get_extra_state() of a task's) belongs to it.
_SAVERS = ("/trainmaster_trainer/checkpoint/memory.py", "/trainmaster_trainer/checkpoint/save.py")
_DATA_LOADER, _GETS = "/torch/utils/data/dataloader.py", ("_get_data", "_try_get_data")
# How something is waited for, not what.
_MEANS = (
    "/threading.py",
    "/queue.py",
    "/selectors.py",
    "/socket.py",
    "/ssl.py",
    "/contextlib.py",
    "/subprocess.py",
    "/concurrent/futures/_base.py",
    "/concurrent/futures/thread.py",
)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
_THREAD = re.compile(r"^(Current thread|Thread) 0x")
# The last line of a dump: the outermost frame of a rank, which was started by `python -c` (see `warm` and
# `new_interpreter`), or that the main thread's stack is too deep. Of `python x.py` it is that of x.py itself.
_END = re.compile(r'^(  File "<string>", line 1 in <module>|  File .* in _run_module_as_main|  \.\.\.)$')
_MODULE = re.compile(r'^  File "(?P<file>.*)", line \d+ in <module>$')
MOST_PER_RANK = 4096


def ask(pid: int) -> int:
    """Ask a rank's process for its stacks; return which process was asked, 0 where none listens, or it is no more.

    Where it is a shell, `nice` or the like, a Python below it is asked: of several the one that has computed most.
    """
    found = (
        [pid] if _catches(pid) else [one for one, python in process.down_to_pythons(pid) if python and _catches(one)]
    )
    if not found:
        return 0
    asked = max(found, key=ticks)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(asked, stack_signal.SIGNAL)
        return asked
    return 0


def programs(pid: int) -> FrozenSet[str]:
    """Return the names of files in the process's command: one of them is its program, if it is `python x.py`."""
    with contextlib.suppress(OSError):
        words = process.read_memory(pid, "cmdline").decode(errors="replace").split("\0")
        return frozenset(word.rpartition("/")[2] for word in words[1:] if word)
    return frozenset()


def _catches(pid: int) -> bool:
    return bool(process.signal_masks(pid)[0] >> (stack_signal.SIGNAL - 1) & 1)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped (SIGSTOP). A debugger's short stops have another letter."""
    return state(pid) == "T"


def state(pid: int) -> str:
    """Return the process's state letter, see proc(5); empty when it is no more."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].strip()[:1]


def ticks(pid: int) -> int:
    """Return how long the process has computed, in ticks of the clock; 0 when it is no more."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:13]))  # utime and stime, see proc(5)


def where_in_kernel(pid: int) -> str:
    """Return what can be said of a process that gives no stack."""
    if is_stopped(pid):
        return "  no Python stack: it is stopped (SIGSTOP), and would train on if it were let run to write one\n"
    waits = _read(Path(f"/proc/{pid}/wchan")).strip("0\n")
    return f"  no Python stack; process state {state(pid) or '?'}{f', in {waits}' if waits else ''}\n"


def read(path: Path, start: int) -> str:
    """Return what was written to a file since its size was `start`."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def size(path: Path) -> int:
    """Return the size of a file in bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def whole(text: str, started_by: Collection[str] = ()) -> str:
    """Return the newest whole dump in what was written, without what is still being written; empty: there is none.

    A dump is written in many pieces, and the main thread, which alone says what the rank is at, comes last.
    `started_by`: the names of files of which one may be the process's program.
    """
    lines = text.split("\n")[:-1]
    outermost = [number for number, line in enumerate(lines) if _is_outermost(line, started_by)]
    ends = [number for number in outermost if _is_main(lines[:number], lines[number])]
    return "\n".join(lines[: ends[-1] + 1]) + "\n" if ends else ""


def _is_outermost(line: str, started_by: Collection[str]) -> bool:
    found = _MODULE.match(line)
    return bool(_END.match(line)) or (found is not None and found["file"].rpartition("/")[2] in started_by)


def _is_main(before: List[str], line: str) -> bool:
    """Return whether a thread's last line is that of the main thread. It takes the signal, unless it blocks it."""
    headers = [one for one in before if _THREAD.match(one)]
    return bool(headers) and (line != "  ..." or headers[-1].startswith("Current"))


def main_thread(dump: str) -> List[Tuple[str, int, str]]:
    """Return frames (file, line, function) of the main thread, innermost first. A dump has that thread last."""
    frames: List[Tuple[str, int, str]] = []
    for line in dump.splitlines():
        if _THREAD.match(line):
            frames = []
        found = _FRAME.match(line)
        if found:
            frames.append((found["file"], int(found["line"]), found["name"]))
    return frames


def main_first(dump: str) -> str:
    """Return a dump with the main thread's stack first: what is shortened to its beginning keeps that one."""
    lines = dump.splitlines(keepends=True)
    start = max((number for number, line in enumerate(lines) if _THREAD.match(line)), default=0)
    return "".join((*lines[start:], "\n" if start else "", *lines[:start]))


def awaits_data(dump: str) -> bool:
    """Return whether the main thread waits for a process of its DataLoader."""
    return any(file.endswith(_DATA_LOADER) and name in _GETS for file, _, name in main_thread(dump))


def activity(dump: str) -> str:
    """Return what the rank is at: one of the words above."""
    frames = main_thread(dump)
    if any(file.endswith(_COMPILERS) for file, _, _ in frames):
        return COMPILING
    for file, _, _ in frames:
        if not file.endswith(_MEANS):
            found = next((word for part, word in _TABLE if part in file), OUTSIDE)
            is_saving = found == OUTSIDE and any(file.endswith(_SAVERS) for file, _, _ in frames)
            return SAVING if is_saving else found
    return UNKNOWN


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
