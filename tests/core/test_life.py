"""The life of a job that nothing disturbs, phase by phase."""

import dataclasses
from datetime import timedelta

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.core.states.actions import CreateReplica, EnsureObject
from trainmaster.wire.agent_states import AgentState, Verb

from tests.builders import NOON, a_job, pending
from tests.core.stage import Stage, a_running_group, a_stage


def test_a_new_job_is_begun_at_once() -> None:
    decision = a_stage(workers=2).turn()
    assert (decision.status.phase, decision.status.attempt) == (Phase.PENDING, 1)
    assert decision.actions == (EnsureObject("Service"), CreateReplica("worker", 0, 0), CreateReplica("worker", 1, 0))


def test_what_is_there_in_a_moment_is_not_written_before() -> None:
    stage = a_new_job().settle()
    assert (stage.writes, len(stage.replicas)) == ([], 2)
    assert stage.wake_at == NOON + timedelta(seconds=5)
    stage.call_in()
    assert [status.phase for status in stage.writes] == [Phase.STARTING]
    assert (stage.status.attempt, stage.status.start_time) == (1, NOON)


def test_what_takes_longer_is_written() -> None:
    stage = a_new_job().settle().wait(4)
    assert stage.writes == []
    stage.wait(1)
    assert [status.message for status in stage.writes] == ["Waiting for worker-0, worker-1."]


def test_an_obstacle_at_the_beginning_is_written_at_once() -> None:
    stage = a_new_job().settle().change("worker-0", lambda replica: pending(replica, "ErrImagePull"))
    assert [event.reason for event in stage.events] == ["ErrImagePull"]
    assert len(stage.writes) == 1


@pytest.mark.parametrize("created", ["", "yesterday", "2026-03-01T12:01:00Z", "2026-03-01T11:59:50Z"])
def test_where_the_time_of_creation_is_old_or_odd_nothing_is_held_back(created: str) -> None:
    stage = Stage(a_job().with_metadata(creationTimestamp=created)).settle()
    assert [status.phase for status in stage.writes] == [Phase.PENDING]
    assert stage.status.start_time
    assert stage.status.start_time <= NOON


def a_new_job() -> Stage:
    """Two workers, created just now."""
    return Stage(a_job().with_workers(2).with_metadata(creationTimestamp="2026-03-01T12:00:00Z"))


def test_it_waits_until_every_agent_has_called() -> None:
    stage = a_stage(workers=2).settle().call_in("worker-0")
    assert stage.status.phase == Phase.PENDING
    assert {orders.verb for orders in stage.orders.values()} == {Verb.WAIT}


def test_it_is_starting_before_the_first_order_to_run_is_given() -> None:
    stage = a_stage(workers=2).settle()
    stage.call_in("worker-0")
    stage.call_in("worker-1")
    starting = next(index for index, status in enumerate(stage.writes) if status.phase == Phase.STARTING)
    assert starting == len(stage.writes) - 1
    assert {orders.verb for orders in stage.orders.values()} == {Verb.RUN}
    assert stage.status.message == "Attempt 1 starts on 2 replicas; no step yet."


def test_everybody_gets_the_same_roster_with_ranks_in_order() -> None:
    stage = a_stage(workers=2, failurePolicy={}).settle().call_in()
    first, second = stage.orders.values()
    assert first == second
    assert first.roster
    assert [(member.index, member.first_rank, member.ranks) for member in first.roster.members] == [
        (0, 0, 1),
        (1, 1, 1),
    ]
    assert first.roster.rendezvous_address == stage.replica("worker-0").address


def test_it_runs_when_no_rank_loads_any_more() -> None:
    stage = a_stage(workers=2).settle().call_in()
    assert stage.obey(phase="load").status.phase == Phase.STARTING
    assert stage.obey("worker-0", phase="train").status.phase == Phase.STARTING
    assert stage.obey("worker-1", phase="train").status.phase == Phase.RUNNING
    assert stage.status.running_time == stage.now
    assert stage.status.message == "Attempt 1 trains on 2 replicas."


def test_a_script_does_not_tell_its_phase_so_running_is_enough() -> None:
    stage = a_stage(workers=1, training={"command": ["python", "train.py"]}).settle().call_in()
    assert stage.obey(phase="load").status.phase == Phase.RUNNING


def test_it_has_succeeded_when_all_workers_finished() -> None:
    stage = a_running_group(workers=2)
    assert stage.finish("worker-0").status.phase == Phase.RUNNING
    assert stage.finish("worker-1").status.phase == Phase.SUCCEEDED
    assert stage.status.reason == "AllWorkersFinished"
    assert stage.status.completion_time == stage.now


def test_the_first_worker_may_finish_before_the_others_have_left_their_start() -> None:
    stage = a_stage(workers=2).settle().call_in().obey("worker-0").obey("worker-1", phase="load")
    stage.finish("worker-0")
    assert stage.status.phase == Phase.STARTING
    assert stage.obey("worker-1").status.phase == Phase.RUNNING
    assert stage.status.attempt == 1, "the first worker's next offer must not count as a new roster"
    assert stage.finish("worker-1").status.phase == Phase.SUCCEEDED


def test_agents_are_sent_home_with_the_job_s_exit_code() -> None:
    stage = a_running_group(workers=1).finish()
    (orders,) = stage.orders.values()
    assert (orders.verb, orders.exit_code) == (Verb.EXIT, 0)


def test_an_agent_that_is_leaving_is_not_told_to_run() -> None:
    stage = a_stage(workers=2).settle().call_in("worker-0")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, state=AgentState.LEAVING))
    stage.call_in("worker-1")
    assert stage.status.phase == Phase.PENDING
    assert {orders.verb for orders in stage.orders.values()} == {Verb.WAIT}


def test_a_replica_that_its_peers_cannot_reach_is_waited_for() -> None:
    stage = a_stage(workers=1).settle()
    stage.change("worker-0", lambda replica: dataclasses.replace(replica, address=""))
    assert stage.call_in().status.phase == Phase.PENDING


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    stage = Stage(a_job().with_metadata(deletionTimestamp="2026-03-01T12:00:00Z"))
    assert not stage.turn().actions


def test_a_limit_for_hangs_may_be_changed_while_ranks_train() -> None:
    """Agents hear it with their orders: a pod's plan is as old as the pod."""
    stage = a_running_group(workers=2)
    assert {orders.hang_seconds for orders in stage.orders.values()} == {None}
    update = {"hang_seconds": 900, "evaluation_seconds": 60}
    policy = stage.job.spec.failure_policy.model_copy(update=update)
    stage.respec(failure_policy=policy)
    told = {(orders.verb, orders.hang_seconds, orders.evaluation_seconds) for orders in stage.orders.values()}
    assert told == {(Verb.RUN, 900.0, 60.0)}
