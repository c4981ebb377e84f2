"""How a rank came to its end: error files, and the kernel's count of out-of-memory kills.

Called by `ranks` when a rank has ended.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List, Optional

from trainmaster.wire import codec
from trainmaster.wire.messages import ErrorReport
from trainmaster_trainer.agent import errors


def read_error(path: str) -> Optional[ErrorReport]:
    """The error file of a rank, ours or one that torch's `@record` wrote; None where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if errors.MEMBER in content:
            return codec.from_plain(ErrorReport, content[errors.MEMBER])
        return _torch_error(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _torch_error(content: Dict[str, Any]) -> ErrorReport:
    message = content["message"]
    if isinstance(message, str):
        return ErrorReport(type="Error", message=message[: errors.MOST_MESSAGE])
    kind, _, text = message["message"].partition(": ")
    more = message["extraInfo"]
    return ErrorReport(
        type=kind,
        message=text[: errors.MOST_MESSAGE],
        traceback=more["py_callstack"][-errors.MOST_TRACEBACK :],
        time=float(more["timestamp"]),
    )


def first_error(paths: Iterable[str]) -> Optional[ErrorReport]:
    """The earliest error of several ranks: what came later is mostly its consequence."""
    found: List[ErrorReport] = [error for error in map(read_error, paths) if error is not None]
    return min(found, key=lambda error: error.time, default=None)


def out_of_memory_kills() -> int:
    """How often the kernel killed a process of this container (cgroup v2 or v1) for want of memory."""
    for path in _counters():
        try:
            with open(path, encoding="ascii") as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except (OSError, ValueError):
            continue
    return 0


def _counters() -> Iterable[str]:
    """Where the counter may be: below the process's own group, or at the mount where a container sees it as root."""
    for line in _own_groups():
        _, controllers, group = line.rstrip("\n").split(":", 2)
        if controllers == "":
            yield os.path.join("/sys/fs/cgroup", group.lstrip("/"), "memory.events")
            yield "/sys/fs/cgroup/memory.events"
        elif "memory" in controllers.split(","):
            yield os.path.join("/sys/fs/cgroup/memory", group.lstrip("/"), "memory.oom_control")
            yield "/sys/fs/cgroup/memory/memory.oom_control"


def _own_groups() -> List[str]:
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            return file.readlines()
    except OSError:
        return []
