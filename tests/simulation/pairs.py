"""Two deaths of the operator, or lost replies, in one life of a scenario: a seed chooses the scenario and the calls.

The sweep of the tests has every single call, and some pairs. This is for the long run: `make simulate FIRST=20000000`.
"""

# ruff: noqa: S311  a seed that is known is the point

from __future__ import annotations

import functools
from random import Random

from tests.simulation.more_scenarios import ALL
from tests.simulation.oracle import live, problems
from tests.simulation.sweeps import WAYS
from tests.simulation.world import World

PAIRS = 20_000_000  # seeds from this one on
SEED = 1
SWEPT = tuple(scenario for scenario in ALL if scenario.sweep)
LONGER = 8  # calls that a life may have more after the first death


def live_pair(seed: int) -> tuple[World, list[str]]:
    """The world afterwards, and what was wrong."""
    random = Random(seed)
    number = random.randrange(len(SWEPT))
    calls = random.sample(range(1, _calls(number) + LONGER), 2)
    world = live(SWEPT[number], SEED, crashes={call: random.choice(WAYS) for call in sorted(calls)})
    world.watch.history.insert(0, f"{SWEPT[number].name}: {world.crashes}")
    return world, problems(SWEPT[number], world)


@functools.cache
def _calls(number: int) -> int:
    """Of the scenario's undisturbed life."""
    return len(live(SWEPT[number], SEED).calls)
