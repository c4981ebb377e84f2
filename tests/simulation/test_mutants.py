"""A simulation that sees nothing is worth nothing: every known bug that is put back must be seen.

docs/peer-bugs.md lists whose bugs they are, and what sees each.
"""

from collections.abc import Iterator

import pytest

from tests.peer_bugs import seen_by
from tests.simulation import campaign
from tests.simulation.more_scenarios import ALL
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.oracle import live, problems

LIVES = 200


def what_is_seen(expected: str = "") -> Iterator[tuple[str, str]]:
    """Where, and what: first where it was seen before, then scenario by scenario, then random lives."""
    if expected.startswith("seed "):
        yield from _in_life(int(expected[5:]))
    for scenario in sorted(ALL, key=lambda scenario: scenario.name != expected):
        yield from ((scenario.name, found) for found in problems(scenario, live(scenario, seed=1)))
    for seed in range(LIVES):
        yield from _in_life(seed)


def _in_life(seed: int) -> Iterator[tuple[str, str]]:
    yield from ((f"seed {seed}", found) for found in campaign.run([seed]).failed)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_bug_is_seen(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    seen = next(what_is_seen(seen_by().get(mutant.name, "")), None)
    assert seen is not None
