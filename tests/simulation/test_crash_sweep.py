"""The operator dies before and after every single call of every scenario, and replies are lost: the same end."""

# ruff: noqa: S311  a seed that is known is the point

import functools
import itertools
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from random import Random

import pytest

from tests.simulation.more_scenarios import ALL
from tests.simulation.oracle import live, problems, tell
from tests.simulation.scenarios import Scenario
from tests.simulation.sweeps import WAYS, Moments, both_sweeps

SEED = 1
PAIRS = 8
scenarios = pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)


@pytest.fixture(scope="module")
def cores() -> Iterator[Executor]:
    """All of them."""
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        yield pool


def test_there_are_forty_scenarios_and_more() -> None:
    assert sum(scenario.sweep for scenario in ALL) >= 40


@functools.cache
def _undisturbed(place: int) -> tuple[list[str], list[str], str]:
    """Return the calls and the history of a scenario's life, and what is wrong with it: of the one at this place."""
    scenario = ALL[place]
    world = live(scenario, SEED)
    found = problems(scenario, world)
    return world.calls, world.watch.history, tell(scenario, world, found) if found else ""


@scenarios
def test_undisturbed_by_us_it_comes_to_its_end(scenario: Scenario) -> None:
    _, history, wrong = _undisturbed(ALL.index(scenario))
    assert not wrong
    assert live(scenario, SEED).watch.history == history, "the same seed is the same life"


@scenarios
@both_sweeps
def test_dying_at_any_call_changes_nothing(scenario: Scenario, cores: Executor, moments: Moments) -> None:
    if scenario.sweep:
        calls, *_ = _undisturbed(ALL.index(scenario))
        _judge(scenario, cores, [{number: way} for number, way in moments(calls)])


@scenarios
def test_dying_twice_changes_nothing(scenario: Scenario, cores: Executor) -> None:
    """At two moments that a seed has chosen; `make simulate FIRST=20000000` has more of them."""
    if scenario.sweep:
        random, calls = Random(scenario.name), len(_undisturbed(ALL.index(scenario))[0])
        pairs = list(itertools.combinations(range(1, calls + 8), 2))
        chosen = random.sample(pairs, min(PAIRS, len(pairs)))
        _judge(scenario, cores, [{number: random.choice(WAYS) for number in pair} for pair in chosen])


def _judge(scenario: Scenario, cores: Executor, crashes: list[dict[int, str]]) -> None:
    found = cores.map(_found, itertools.repeat(ALL.index(scenario)), crashes, chunksize=8)
    assert [one for one in found if one] == []


def _found(index: int, crashes: dict[int, str]) -> str:
    """Runs in another process, where scenarios are known by their place."""
    scenario = ALL[index]
    world = live(scenario, SEED, crashes=crashes)
    found = problems(scenario, world)
    return f"{crashes}: {tell(scenario, world, found)}" if found else ""
