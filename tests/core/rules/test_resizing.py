"""The number of workers changes while the job runs: a new attempt of the new size, and no restart."""

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.core.states.actions import GiveOrders
from trainmaster.wire.agent_states import Verb

from tests.core.stage import Stage, a_running_group, a_stage


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (1, 2), (2, 1)])
def test_the_group_goes_on_in_its_new_size(before: int, after: int) -> None:
    stage = a_running_group(workers=before).scale(after)
    assert Phase.RESIZING in [status.phase for status in stage.writes]
    assert stage.call_in().obey().status.phase == Phase.RUNNING
    assert (stage.status.attempt, len(stage.replicas)) == (2, after)
    assert (stage.status.restart_count, stage.status.restarts, stage.status.incarnations) == (0, (), {})


def test_it_is_told() -> None:
    stage = a_running_group(workers=2).scale(3)
    assert stage.status.message == "Resizing from 2 to 3 workers."
    assert stage.events[-1].reason == "Resizing"


def test_a_change_of_mind_while_the_group_gathers_is_no_further_attempt() -> None:
    stage = a_running_group(workers=2).scale(4).scale(3).call_in().obey()
    assert (stage.status.phase, stage.status.attempt, len(stage.replicas)) == (Phase.RUNNING, 2, 3)


def test_a_change_of_mind_after_the_order_to_run_is_one_more() -> None:
    stage = a_running_group(workers=2).scale(4).call_in().scale(3).obey()
    assert (stage.status.phase, stage.status.attempt, len(stage.replicas)) == (Phase.RUNNING, 3, 3)


def test_a_group_that_has_not_started_simply_waits_for_more() -> None:
    stage = a_stage(workers=2).settle().scale(3).train()
    assert (stage.status.attempt, len(stage.replicas)) == (1, 3)


def test_while_suspended_a_new_size_is_merely_noted() -> None:
    stage = a_running_group(workers=2).respec(suspend=True).scale(3).respec(suspend=False).train()
    assert (stage.status.attempt, len(stage.replicas)) == (2, 3)


def test_who_is_left_may_have_finished_already() -> None:
    stage = a_running_group(workers=2).finish("worker-0").scale(1)
    assert stage.status.phase == Phase.SUCCEEDED


def orders_of_the_new_size(stage: Stage, workers: int) -> set[str]:
    """What is decided for agents that say nothing new meanwhile."""
    smaller = stage.job.spec.workers.model_copy(update={"replicas": workers})
    stage.job = stage.job.model_copy(update={"spec": stage.job.spec.model_copy(update={"workers": smaller})})
    assert stage.turn().again, "the new size is written first"
    given = [action.orders for action in stage.decide().actions if isinstance(action, GiveOrders)]
    return {orders.verb for orders in dict(given[0]).values()}


def test_it_does_not_meet_where_the_old_one_may_have_met_unheard() -> None:
    stage = a_stage(workers=3).settle().call_in()
    assert {orders.verb for orders in stage.orders.values()} == {Verb.RUN}
    assert orders_of_the_new_size(stage, 2) == {Verb.WAIT}
    assert stage.obey().status.phase == Phase.RUNNING


def test_what_agents_offer_while_they_train_is_good_for_the_next_attempt() -> None:
    assert orders_of_the_new_size(a_running_group(workers=3), 2) == {Verb.RUN}
