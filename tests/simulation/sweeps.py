"""At which of the operator's calls a sweep lets it die, and how: at each one, in turn or in every way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import pytest

from tests.simulation.world import AFTER, BEFORE, LOST

Moments = Callable[[Sequence[str]], Iterator[tuple[int, str]]]
"""Gives the number of each call (the first is 1) with a fault, from the calls of an undisturbed life."""

WAYS = (BEFORE, AFTER, LOST)
# Orders and events are memory: before and after are the same, and there is no reply to be lost.
_WAYS_OF = {"orders": (BEFORE,), "event": (BEFORE,)}


def in_turn(calls: Sequence[str]) -> Iterator[tuple[int, str]]:
    """One fault at each call: of the calls of a kind the first has the first fault, the second the next one.

    Of orders or events that follow one another one has it, as nothing is written down between: the first, and where
    such calls come again, the last.
    """
    seen: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for call, run in groupby(enumerate(calls, start=1), key=lambda numbered: numbered[1]):
        numbers = [number for number, _ in run]
        ways = _WAYS_OF.get(call, WAYS)
        for number in [numbers[-(runs[call] % 2)]] if call in _WAYS_OF else numbers:
            yield number, ways[seen[call] % len(ways)]
            seen[call] += 1
        runs[call] += 1


def every_way(calls: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Every fault at each call."""
    for number, call in enumerate(calls, start=1):
        for way in _WAYS_OF.get(call, WAYS):
            yield number, way


both_sweeps = pytest.mark.parametrize(
    "moments", [pytest.param(in_turn, id="in_turn"), pytest.param(every_way, id="every_way", marks=pytest.mark.soak)]
)
"""A sweep in a third of the time for `make test`, and the whole one for `make soak`."""
