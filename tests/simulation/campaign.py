"""Many random lives, one after the other: what they did, and which of them went wrong. Used by tests and `__main__`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.lives import Life
from tests.simulation.world import World

SHOWN = 40


@dataclass
class Campaign:
    """What came of some seeds. `failed` are sentences for people, with the command that replays them."""

    lives: int = 0
    calls: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def add(self, other: Campaign) -> Campaign:
        """Both together."""
        return Campaign(
            self.lives + other.lives,
            self.calls + other.calls,
            self.injected + other.injected,
            self.failed + other.failed,
        )


def run(seeds: Iterable[int]) -> Campaign:
    """Live through all of them."""
    campaign = Campaign()
    for seed in seeds:
        world, found = Life.of(seed).live()
        campaign.lives += 1
        campaign.calls += len(world.calls)
        campaign.injected += world.injected + world.suffered
        if found:
            campaign.failed.append(story(seed, world, found))
    return campaign


def story(seed: int, world: World, found: list[str]) -> str:
    """What went wrong, and the life that led to it."""
    replay = f"Replay: .venv/bin/python -m tests.simulation --seed {seed}"
    return "\n".join([f"Seed {seed}:", *found, "", *world.watch.history[-SHOWN:], "", replay])
