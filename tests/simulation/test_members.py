"""Jobs whose members come and go: the operator dies at any call, others are never disturbed, known bugs are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import member_failures
from trainmaster.core.regime import membership
from trainmaster.core.rules import members
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.wire.messages import Rendezvous

from tests.simulation.members import LONELY, Lonely, starts
from tests.simulation.oracle import live, problems, tell
from tests.simulation.sweeps import Moments, both_sweeps
from tests.simulation.world import AFTER, World

SEED = 3


def wrong(scenario: Lonely, world: World) -> list[str]:
    """What is wrong with how it ended; empty: nothing."""
    found, status = problems(scenario, world), world.status()
    if status.attempt not in scenario.attempts:
        found.append(f"ended in attempt {status.attempt}, not {scenario.attempts}")
    if scenario.all_return and not world.crashes:  # an operator that was away may close them as late as at the end
        found += [f"{line.failure_class} at step {line.step} is still open" for line in _open(status)]
    lost = sum(line.steps_lost or 0 for line in status.restarts)
    if lost not in scenario.lost:
        found.append(f"the ledger says that {lost} steps were lost, not {scenario.lost}")
    again = [slot for slot in scenario.undisturbed if starts(world).count(slot) != 1]
    return [*found, f"{again} were started more than once"] if again else found


def _open(status: TrainingJobStatus) -> list[RestartRecord]:
    """The lines that only the end has closed, though all trained to the end."""
    end = status.completion_time
    return [line for line in status.restarts if end and figures.later(line.time, line.seconds_lost or 0.0) >= end]


def name(scenario: Lonely) -> str:
    return f"{scenario.name}-{scenario.job.spec['strategy']['type']}"


@pytest.mark.parametrize("scenario", LONELY, ids=name)
@both_sweeps
def test_dying_at_any_call_disturbs_nobody(scenario: Lonely, moments: Moments) -> None:
    undisturbed = live(scenario, SEED)
    assert not wrong(scenario, undisturbed), tell(scenario, undisturbed, wrong(scenario, undisturbed))
    for number, way in moments(undisturbed.calls):
        world = live(scenario, SEED, crashes={number: way})
        found = wrong(scenario, world)
        assert not found, f"{way} call {number}: {tell(scenario, world, found)}"


# Bugs that such a control side can have, put back in one at a time.


def a_lonely_death_is_counted_again_and_again(patch: pytest.MonkeyPatch) -> None:
    def whatever_start(facts: Facts, slot: Slot, *states: str) -> bool:
        beat = slot.heartbeat
        return beat is not None and beat.state in states and beat.attempt == facts.status.attempt

    patch.setattr(membership, "is_at", whatever_start)


def a_loss_restarts_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "can_go_on", lambda _facts, without: not without)


def nobody_notices_that_all_servers_have_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "can_go_on", lambda _facts, without: bool(without))


def the_key_is_that_of_the_first_workers_next_offer(patch: pytest.MonkeyPatch) -> None:
    def offered(facts: Facts) -> Rendezvous | None:
        beat = facts.slots[0].heartbeat
        return beat.offer if beat else None

    patch.setattr(membership, "meeting", offered)


def members_join_without_being_written_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "members", lambda facts: facts.slots)
    patch.setattr(members, "_joined", lambda _facts: None)


def a_new_operator_takes_the_silent_for_gone(patch: pytest.MonkeyPatch) -> None:
    """Workers then read that their servers have left, though they train."""
    patch.setattr(membership, "silent_until", lambda _facts: None)


def ranks_are_numbered_by_who_is_there(patch: pytest.MonkeyPatch) -> None:
    def by_presence(facts: Facts) -> dict[str, int]:
        return {slot.key: number for number, slot in enumerate(slot for slot in facts.slots if slot.ready)}

    patch.setattr(membership, "first_ranks", by_presence)


def each_of_those_that_die_of_the_same_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    """The second one is then "the same error twice", and ends the job."""
    again = members._again
    patch.setattr(member_failures, "_line_to_join", lambda *_: None)
    patch.setattr(members, "_again", lambda facts, died: again(facts, died[:1]))


def the_dead_are_told_nothing_new(patch: pytest.MonkeyPatch) -> None:
    """The restart is written, and its number is not in the roster."""
    patch.setattr(membership, "start_of", lambda _facts, _slot: 0)


MUTANTS = (
    a_lonely_death_is_counted_again_and_again,
    a_loss_restarts_everybody,
    nobody_notices_that_all_servers_have_gone,
    the_key_is_that_of_the_first_workers_next_offer,
    members_join_without_being_written_down,
    a_new_operator_takes_the_silent_for_gone,
    ranks_are_numbered_by_who_is_there,
    each_of_those_that_die_of_the_same_is_a_failure,
    the_dead_are_told_nothing_new,
)


def what_is_seen() -> Iterator[str]:
    """Undisturbed lives first, then those whose operator dies in the middle."""
    for scenario in LONELY:
        yield from wrong(scenario, live(scenario, SEED))
    for scenario in LONELY:
        for number in range(5, len(live(scenario, SEED).calls), 5):
            yield from wrong(scenario, live(scenario, SEED, crashes={number: AFTER}))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_bug_is_seen(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert next(what_is_seen(), None) is not None
