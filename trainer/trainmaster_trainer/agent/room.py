"""How much memory is left for a process that nobody needs. Called by `learning`.

Where a container is short of memory, the kernel may end all of it (memory.oom.group, which kubelets set), so what is
merely useful must not come near the limit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

_HOST = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def is_left_for(pid: int, host: Path = _HOST, group: Path = _GROUP) -> bool:
    """Whether there is room for as much as this process has of its own."""
    own = _number("RssAnon", Path(f"/proc/{pid}/status"))
    left = _number("MemAvailable", host)
    if own is None or left is None:
        return False
    limit = _left_in(group)
    return own * 1024 < min(left * 1024, limit if limit is not None else left * 1024)


def _left_in(group: Path) -> Optional[int]:
    """Bytes below the limit of the cgroup, not counting what the page cache would give back; None: no limit."""
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
