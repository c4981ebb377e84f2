"""Find out how a rank came to its end: exit status, error files, and the kernel's count of out-of-memory kills."""

from __future__ import annotations

import json
import math
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from trainmaster.wire import codec
from trainmaster.wire.files import open_to_read
from trainmaster.wire.messages import ErrorReport

from trainmaster_trainer.agent import rank_errors
from trainmaster_trainer.agent.supervise import RankEnded

MOST_BYTES = 16 << 20  # of an error file: a script writes what it likes
_MOST_NAME = 256
# As torch says it. Where it has not seen the signal, it merely says that the process has ended.
_DATA_WORKER_KILLED = re.compile(r"DataLoader worker \(pid.*(killed by signal: Killed|exited unexpectedly)")
# The process that ranks are forked from has the most memory of all at first, so it may be the one that is killed.
_FOR_MEMORY = ", as all processes of this replica together, data workers too, had more memory than it may have"
_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Death:
    """A death is what is known of an ended rank without looking further."""

    attempt: int
    rank: int
    step: int
    end: Dict[str, Any]  # the warm parent's word: code, signal or failure
    signalled: Optional[float]  # when the agent told it to end
    kills_before: int  # `out_of_memory_kills` when the attempt began
    said: str = ""  # the end of its standard error


def judge(death: Death, error_files: Dict[int, Path]) -> RankEnded:
    """Return the event for the supervisor. `error_files` are those of all local ranks; none where they never began."""
    own = read_error(error_files[death.rank]) if death.rank in error_files else None
    ours = death.signalled is not None and (own is None or own.time >= death.signalled)
    cause, error = _first_error(death.rank, own, error_files)
    said = "" if error else death.said  # an error of Python's tells more than what is printed of it
    # A process that made samples for the rank may have been killed for memory.
    lost_a_data_worker = error is not None and _DATA_WORKER_KILLED.search(error.message) is not None
    killed = (death.end.get("signal") == "SIGKILL" and not ours) or lost_a_data_worker
    out_of_memory = killed and out_of_memory_kills() > death.kills_before
    # Only a process that never came to be, or whose end was not seen, has such an error.
    if death.end.get("failure"):
        kind = death.end.get("type", "StartFailed")
        message = f"{death.end['failure']}{_FOR_MEMORY if out_of_memory else ''}"
        error = ErrorReport(type=kind, message=message, time=time.time())
    return RankEnded(
        attempt=death.attempt,
        rank=death.rank,
        step=death.step,
        exit_code=death.end.get("code"),
        signal=death.end.get("signal"),
        out_of_memory=out_of_memory,
        error=error,
        ours=ours,
        cause=cause,
        said=said,
    )


def _first_error(
    rank: int, own: Optional[ErrorReport], error_files: Dict[int, Path]
) -> Tuple[int, Optional[ErrorReport]]:
    """Return the rank that erred first, and its error. A rank that died without one has caused the others' errors."""
    if own is None:
        return rank, None
    found = [(other, read_error(path)) for other, path in error_files.items()]
    return min(
        ((other, error) for other, error in found if error is not None),
        key=lambda one: one[1].time,
        default=(rank, own),
    )


def read_error(path: Path) -> Optional[ErrorReport]:
    """Return the error file of a rank, ours or one that torch's `@record` wrote; None where there is none.

    It is written by a user's process, so nothing in it is taken for granted: neither its size nor its form.
    """
    try:
        with os.fdopen(open_to_read(path), "rb") as file:
            text = file.read(MOST_BYTES + 1)
            if len(text) > MOST_BYTES:
                message = f"its error file has more than {MOST_BYTES >> 20} MiB and was not read"
                return ErrorReport(type="Error", message=message, time=os.fstat(file.fileno()).st_mtime)
        content = json.loads(text)
        if rank_errors.MEMBER in content:
            return _cut(codec.from_plain(ErrorReport, content[rank_errors.MEMBER]))
        return _cut(_torch_error(content))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _cut(error: ErrorReport) -> ErrorReport:
    """Return an error no longer than those that `errors` writes: it travels with heartbeats."""
    return replace(
        error,
        type=error.type[:_MOST_NAME],
        message=error.message[: rank_errors.MOST_MESSAGE],
        frame=error.frame[: rank_errors.MOST_MESSAGE],
        traceback=error.traceback[-rank_errors.MOST_TRACEBACK :],
        time=error.time if math.isfinite(error.time) else 0.0,
    )


def _torch_error(content: Dict[str, Any]) -> ErrorReport:
    message = content["message"]
    if isinstance(message, str):
        return ErrorReport(type="Error", message=message)
    kind, _, text = message["message"].partition(": ")
    more = message["extraInfo"]
    return ErrorReport(type=kind, message=text, traceback=more["py_callstack"], time=float(more["timestamp"]))


def out_of_memory_kills() -> int:
    """Return how often the kernel killed a process of this container (cgroup v2 or v1) for want of memory."""
    for path in _counters():
        count = _count(path)
        if count is not None:
            return count
    return 0


def _count(path: Path) -> Optional[int]:
    try:
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def _counters() -> Iterator[Path]:
    """Yield where the counter may be: below the process's own group, or at the mount, which may be that group."""
    for line in _own_groups():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield _GROUPS / group.lstrip("/") / "memory.events"
            yield _GROUPS / "memory.events"
        elif "memory" in controllers.split(","):
            yield _GROUPS / "memory" / group.lstrip("/") / "memory.oom_control"
            yield _GROUPS / "memory" / "memory.oom_control"


def _own_groups() -> List[str]:
    try:
        return Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
