"""The operator dies before and after every single call of every scenario, and replies are lost: the same end."""

import pytest

from tests.simulation.oracle import live, problems, tell
from tests.simulation.scenarios import SCENARIOS, Scenario
from tests.simulation.world import AFTER, BEFORE, LOST

SEED = 1
# Orders and events are memory: before and after are the same, and there is no reply to be lost.
FAULTS_OF = {"orders": (BEFORE,), "event": (BEFORE,)}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_dying_at_any_call_changes_nothing(scenario: Scenario) -> None:
    undisturbed = live(scenario, SEED)
    assert not problems(scenario, undisturbed), tell(scenario, undisturbed, problems(scenario, undisturbed))
    for number, call in enumerate(undisturbed.calls, start=1):
        for fault in FAULTS_OF.get(call, (BEFORE, AFTER, LOST)):
            world = live(scenario, SEED, crashes={number: fault})
            found = problems(scenario, world)
            assert not found, f"{fault} call {number} ({call}): {tell(scenario, world, found)}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_same_seed_is_the_same_life(scenario: Scenario) -> None:
    assert live(scenario, SEED).watch.history == live(scenario, SEED).watch.history
