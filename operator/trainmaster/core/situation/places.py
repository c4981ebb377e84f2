"""Compute which worker fills which place of the group: pure arithmetic on indexes.

A place is a worker's part in the group: its ranks. Worker 1 fills place 1, unless a spare has taken that place over
(`status.substitutes`); a worker that fills no place is a spare.
"""

import itertools
from collections.abc import Mapping

from trainmaster.wire import names


def seated(workers: int, substitutes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the index of the worker at each of so many places. A worker fills one place, whatever `substitutes` says.

    Places that were added later go to free workers: first to the worker of that number.
    """
    if not substitutes:
        return tuple(range(workers))
    fills: dict[int, int] = {}  # worker to its place
    for place in range(workers):
        index = substitutes.get(name_of(place))
        if index is not None:
            fills.setdefault(index, place)
    for place in set(range(workers)) - set(fills.values()):
        fills.setdefault(place, place)
    free = (index for index in itertools.count() if index not in fills)
    worker = {place: index for index, place in fills.items()}
    return tuple(worker[place] if place in worker else next(free) for place in range(workers))


def written(seats: tuple[int, ...]) -> dict[str, int]:
    """Return seats as `status.substitutes` holds them: only places that a worker of another number fills."""
    return {name_of(place): index for place, index in enumerate(seats) if place != index}


def name_of(place: int) -> str:
    """Return the name of a place: that of the worker that fills it at first."""
    return names.replica_key(names.WORKER, place)
