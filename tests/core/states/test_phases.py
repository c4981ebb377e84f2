"""The table of phases: complete, and what the rest of the core relies on."""

import pytest
from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.core.states import phases

ALL = tuple(Phase)


def test_the_table_has_all_phases() -> None:
    assert set(phases.STEPS) == set(ALL)


@pytest.mark.parametrize("phase", ALL)
def test_every_step_leads_to_another_phase_and_has_a_reason(phase: Phase) -> None:
    for following, why in phases.next_phases(phase):
        assert following in ALL
        assert following != phase
        assert why


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_nothing_follows_the_end(phase: Phase) -> None:
    assert phases.next_phases(phase) == ()


@pytest.mark.parametrize("phase", sorted(set(ALL) - TERMINAL - {Phase.SUSPENDED}))
def test_every_other_phase_may_fail(phase: Phase) -> None:
    assert Phase.FAILED in dict(phases.next_phases(phase))


def test_ranks_run_in_starting_and_running_only() -> None:
    """Whatever may succeed was told to run; while a group gathers, nobody was."""
    may_succeed = {phase for phase in ALL if Phase.SUCCEEDED in dict(phases.next_phases(phase))}
    assert may_succeed == {Phase.STARTING, Phase.RUNNING}
    assert not may_succeed & phases.GATHERING


def test_every_phase_can_be_reached() -> None:
    reached, waiting = {Phase.PENDING}, [Phase.PENDING]
    while waiting:
        following = set(dict(phases.next_phases(waiting.pop()))) - reached
        reached |= following
        waiting += following
    assert reached == set(ALL)
