"""Decide how many data workers a rank has, and what they make ahead, where the YAML does not say."""

from __future__ import annotations

PREFETCH = 2  # batches that each of them makes ahead
MOST = 4  # one rank's step seldom takes more; who needs more says so


def by_cores(cores: int, ranks: int) -> int:
    """Return the number for each of `ranks` ranks that share `cores` cores: one core is left to the rank itself."""
    return max(0, min(MOST, cores // ranks - 1))
