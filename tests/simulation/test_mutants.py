"""A simulation that sees nothing is worth nothing: every known bug that is put back must be seen."""

from collections.abc import Iterator

import pytest

from tests.simulation import campaign
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.oracle import live, problems
from tests.simulation.scenarios import SCENARIOS

LIVES = 120


def what_is_seen() -> Iterator[str]:
    """Scenarios first, then random lives, until something is seen."""
    for scenario in SCENARIOS:
        yield from (f"{scenario.name}: {found}" for found in problems(scenario, live(scenario, seed=1)))
    for seed in range(LIVES):
        yield from campaign.run([seed]).failed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_bug_is_seen(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    assert next(what_is_seen(), None) is not None
