"""Many random lives, one after the other: what they did, and which of them went wrong. Used by tests and `__main__`."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.simulation.lives import Life
from tests.simulation.pairs import PAIRS, live_pair
from tests.simulation.troubles import DEATHS
from tests.simulation.world import World

SHOWN = 40
PORTION = 25


@dataclass
class Campaign:
    """What came of some seeds. `failed` are sentences for people, with the command that replays them."""

    lives: int = 0
    calls: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many were injected, of all kinds."""
        return sum(self.injected.values())

    @property
    def deaths(self) -> int:
        """The faults of which a process died; most others are news or words that were lost or came twice."""
        return sum(self.injected[kind] for kind in DEATHS)

    def add(self, other: Campaign) -> Campaign:
        """Both together."""
        return Campaign(
            self.lives + other.lives,
            self.calls + other.calls,
            self.injected + other.injected,
            self.failed + other.failed,
        )


def live(seed: int) -> tuple[World, list[str]]:
    """One life: what its seed stands for says its range."""
    return live_pair(seed) if seed >= PAIRS else Life.of(seed).live()


def run(seeds: Iterable[int]) -> Campaign:
    """Live through all of them."""
    campaign = Campaign()
    for seed in seeds:
        world, found = live(seed)
        campaign.lives += 1
        campaign.calls += len(world.calls)
        campaign.injected += world.injected + world.suffered
        if found:
            campaign.failed.append(story(seed, world, found))
    return campaign


def spread(
    *,
    first: int = 0,
    lives: int | None = None,
    faults: int | None = None,
    told: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """Lives from seed `first` on, over all cores, until there were so many lives, or so many faults, or a failure.

    `told` hears of the whole campaign after each portion.
    """
    total, seeds = Campaign(), _portions(first, lives)
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        running = {pool.submit(run, portion) for portion in itertools.islice(seeds, 2 * (os.cpu_count() or 1))}
        while running:
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            total = functools.reduce(Campaign.add, (one.result() for one in done), total)
            told(total)
            if not total.failed and (faults is None or total.faults < faults):
                running |= {pool.submit(run, portion) for portion in itertools.islice(seeds, len(done))}
    return total


def _portions(first: int, lives: int | None) -> Iterator[range]:
    starts = itertools.count(first, PORTION) if lives is None else range(first, first + lives, PORTION)
    end = float("inf") if lives is None else first + lives
    return (range(start, int(min(start + PORTION, end))) for start in starts)


def story(seed: int, world: World, found: list[str]) -> str:
    """What went wrong, and the life that led to it."""
    replay = f"Replay: .venv/bin/python -m tests.simulation --seed {seed}"
    return "\n".join([f"Seed {seed}:", *found, "", *world.watch.history[-SHOWN:], "", replay])
