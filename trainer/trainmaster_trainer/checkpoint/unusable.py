"""Report when no checkpoint is good: there are none, or all are bad.

Training that began at step 0 over bad ones would prune them and give up for good what a storage that is back, or a
version that reads their format, could still give. So this is an error, and nothing is touched.
"""

from __future__ import annotations

from collections.abc import Sequence


def none_is_good(names: Sequence[str], place: str, reason: str = "") -> str:
    """Return a sentence with a cure. `names`: the newest first."""
    why = f" ({reason})" if reason else ""
    return (
        f"none of the checkpoints in {place} can be used: {len(names)} are bad, the newest is {names[0]}{why}. "
        "Restore them, or take them away to begin at step 0."
    )
