"""Find how much memory is left on this machine and in this container.

Where a container is short of memory, the kernel may end all of it (memory.oom.group, which kubelets set), so what is
merely useful must not come near the limit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Optional

_HOST = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def memory_left(host: Path = _HOST, group: Path = _GROUP) -> List[int]:
    """Return bytes: what the machine has left, and what is left below the container's limit where it has one."""
    available = _number("MemAvailable", host)
    below = _below_limit(group)
    return ([] if available is None else [available << 10]) + ([] if below is None else [below])


def is_ample(needed: int, share: int) -> bool:
    """Return whether `needed` bytes are less than that part, 1/share, of what is left."""
    return needed * share < min(memory_left(), default=0)


def is_left_for(pid: int, host: Path = _HOST, group: Path = _GROUP) -> bool:
    """Return whether there is room for as much as this process has of its own."""
    own = _number("RssAnon", Path(f"/proc/{pid}/status"))
    return own is not None and own << 10 < min(memory_left(host, group), default=0)


def _below_limit(group: Path) -> Optional[int]:
    """Return the bytes left below the limit, with what the page cache would give back; None: no limit."""
    try:
        limit, used = (group / "memory.max").read_text().strip(), int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return None  # the host's own group, or the old hierarchy
    cached = _number("inactive_file", group / "memory.stat") or 0
    return int(limit) - used + cached if limit.isdigit() else None


def _number(name: str, path: Path) -> Optional[int]:
    try:
        found = re.search(rf"^{name}:?\s+(\d+)", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
