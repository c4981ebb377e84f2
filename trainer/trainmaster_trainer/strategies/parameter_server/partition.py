"""Decide which server holds which parameter: the biggest first, each to the server that has the least so far.

This is greedy number partitioning (Graham, "Bounds on multiprocessing timing anomalies", 1969: at most 4/3 of the
best). It depends on names and sizes alone, so every worker and every server finds the same split without asking.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster_trainer.errors import ConfigurationError


def divide(sizes: Mapping[str, int], servers: int) -> list[list[str]]:
    """Return the names of each server's parameters, given the bytes of each by name.

    Raises:
        ConfigurationError: there are more servers than tensors.
    """
    if servers > len(sizes):
        raise ConfigurationError(
            f"spec.parameterServers.replicas: {servers} servers for a model of {len(sizes)} parameter tensors; a "
            f"tensor stays whole. Lower it to {len(sizes)} at most."
        )
    parts: list[list[str]] = [[] for _ in range(servers)]
    load = [0] * servers
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = min(range(servers), key=lambda index: (load[index], len(parts[index]), index))
        parts[least].append(name)
        load[least] += sizes[name]
    return [sorted(part) for part in parts]
