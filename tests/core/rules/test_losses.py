"""Replicas that are lost are replaced by a new incarnation; what it costs depends on what had begun."""

import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.core.states.observed import Ending, Replica
from trainmaster.wire.agent_states import Verb

from tests.builders import NOON, a_death, a_replica, deleting, ended, evicted
from tests.core.stage import a_running_group, a_stage


def test_a_lost_replica_is_replaced_under_a_new_name() -> None:
    stage = a_running_group(workers=2).change("worker-1", evicted)
    assert stage.status.incarnations == {"worker-1": 1}
    assert stage.created[-1] == "digits-worker-1-1"
    assert (stage.status.phase, stage.status.attempt) == (Phase.RESTARTING, 2)


def test_a_pod_that_is_stuck_in_terminating_is_not_waited_for() -> None:
    stage = a_running_group(workers=2).change("worker-1", deleting)
    assert "digits-worker-1-0" in stage.replicas
    assert stage.call_in().obey(step=5).status.phase == Phase.RUNNING


def test_the_others_keep_their_pods_and_wait() -> None:
    stage = a_running_group(workers=3).vanish("worker-1")
    survivor = stage.replica("worker-0")
    assert survivor.incarnation == 0
    assert (stage.orders[survivor.uid].verb, stage.orders[survivor.uid].attempt) == (Verb.WAIT, 2)


@pytest.mark.parametrize(
    ("how", "failure_class", "counted"),
    [
        (evicted, "Disruption", False),
        (deleting, "ReplicaDeleted", False),
        (lambda replica: ended(replica, 1), "AgentFailed", True),
        (lambda replica: ended(replica, 0), "ReplicaEnded", True),
        (lambda replica: ended(replica, 137, "OOMKilled"), "OutOfMemory", True),
    ],
)
def test_a_loss_is_classed_and_counted(how: Callable[[Replica], Replica], failure_class: str, counted: bool) -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0})
    stage.change("worker-1", how)
    assert stage.status.restarts[-1].failure_class == failure_class
    assert (stage.status.phase == Phase.FAILED) is counted


@pytest.mark.parametrize(
    ("how", "failure_class"),
    [(evicted, "Disruption"), (lambda replica: ended(replica, 137, "OOMKilled"), "OutOfMemory")],
)
def test_a_rank_that_was_killed_with_its_pod_is_no_failure_of_its_own(
    how: Callable[[Replica], Replica], failure_class: str
) -> None:
    """One process is killed after the other, and the agent was quick enough to tell of the first."""
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 1})
    stage.rank_dies("worker-1", a_death(step=50)).wait(20).change("worker-1", how)
    (line,) = stage.status.restarts
    assert (line.failure_class, line.attempt, line.step, line.replica) == (failure_class, 1, 50, "worker-1")
    assert (stage.status.restart_count, stage.status.incarnations) == (1, {"worker-1": 1})
    assert stage.call_in().obey(step=51).status.restarts[-1].seconds_lost == 20


@pytest.mark.parametrize(("killed", "after"), [("worker-1", 61), ("worker-0", 1)], ids=["long before", "another's"])
def test_else_it_is_a_failure_of_its_own(killed: str, after: float) -> None:
    stage = a_running_group(workers=2)
    stage.rank_dies(killed, a_death(step=50)).wait(after).change("worker-1", evicted)
    assert [line.failure_class for line in stage.status.restarts] == ["Signal", "Disruption"]


def test_two_losses_at_once_are_one_restart() -> None:
    stage = a_running_group(workers=3)
    for key in ("worker-0", "worker-2"):
        stage.replicas[stage.replica(key).name] = evicted(stage.replica(key))
    stage.settle()
    assert (stage.status.attempt, stage.status.restart_count) == (2, 1)
    assert stage.status.incarnations == {"worker-0": 1, "worker-2": 1}


def test_before_the_group_is_complete_a_loss_costs_nothing() -> None:
    stage = a_stage(workers=2).settle().call_in("worker-0").vanish("worker-0")
    assert stage.created.count("digits-worker-0-0") == 2, "nothing had begun: the same incarnation again"
    stage.change("worker-0", deleting)
    assert (stage.status.attempt, stage.status.restart_count, stage.status.restarts) == (1, 0, ())
    assert stage.status.incarnations == {"worker-0": 1}


def test_once_orders_to_run_may_be_out_a_loss_is_a_new_attempt() -> None:
    stage = a_stage(workers=2).settle().call_in()
    assert stage.status.phase == Phase.STARTING
    stage.vanish("worker-1")
    assert (stage.status.phase, stage.status.attempt, stage.status.restart_count) == (Phase.RESTARTING, 2, 1)
    assert stage.status.incarnations == {"worker-1": 1}


def test_an_operator_that_restarts_in_mid_start_does_not_forget_that_orders_are_out() -> None:
    stage = a_stage(workers=1).settle().call_in().operator_restarts()
    assert stage.status.phase == Phase.STARTING
    stage.change("worker-0", deleting)
    assert stage.status.attempt == 2


def test_a_second_loss_while_the_group_gathers_is_not_a_second_restart() -> None:
    stage = a_running_group(workers=2).vanish("worker-0")
    stage.change("worker-1", evicted)
    assert (stage.status.phase, stage.status.attempt, stage.status.restart_count) == (Phase.RESTARTING, 2, 1)
    assert stage.status.incarnations == {"worker-0": 1, "worker-1": 1}
    assert stage.call_in().obey().status.phase == Phase.RUNNING


@pytest.mark.parametrize("container", ["", "fetch"], ids=["the agent", "an init container"])
def test_the_same_end_three_times_is_no_weather(container: str) -> None:
    """Nobody waits for ten restarts to be told what the first one said."""
    stage = a_stage(workers=2).settle()
    for number in range(3):
        assert stage.status.phase != Phase.FAILED
        end = Ending(1, "Error", f"job {number} at 12:0{number}\nno such module", container)
        stage.wait(60)
        stage.change("worker-0", partial(dataclasses.replace, phase="Failed", ending=end))
    assert (stage.status.phase, stage.status.reason) == (Phase.FAILED, "AgentFailed")
    assert "no such module" in (stage.status.message or "")
    assert "The same error came 3 times" in (stage.status.message or "")


def test_an_agent_that_ends_each_time_of_something_else_uses_the_budget_up() -> None:
    stage = a_stage(workers=1, failurePolicy={"maxRestarts": 3}).settle()
    reasons = iter(("no such module", "no such host", "no such file", "no such user"))
    while not stage.status.finished:
        stage.wait(60).change("worker-0", lambda replica: ended(replica, 1, "Error", next(reasons)))
    assert (stage.status.reason, len(stage.created)) == ("RestartsExhausted", 4)
    assert "no such user" in (stage.status.message or "")


def test_an_agent_that_is_killed_three_times_has_not_failed() -> None:
    """Whoever kills pods to see what happens must not end the job by it."""
    stage = a_stage(workers=1).settle()
    for _ in range(5):
        stage.wait(60).change("worker-0", lambda replica: ended(replica, 137, "Error", "trained on"))
    assert stage.status.phase != Phase.FAILED


def test_an_agent_that_refuses_its_configuration_ends_the_job() -> None:
    stage = a_stage(workers=1).settle()
    stage.change("worker-0", lambda replica: ended(replica, 78, "Error", "no TRAINMASTER_JOB"))
    assert (stage.status.phase, stage.status.reason) == (Phase.FAILED, "BadConfiguration")


def test_extra_replicas_and_old_incarnations_are_deleted() -> None:
    stage = a_running_group(workers=1)
    stage.scale(3).call_in().obey()
    stage.scale(1)
    assert set(stage.replicas) == {"digits-worker-0-0"}


def test_a_replica_newer_than_the_status_that_we_see_is_left_alone() -> None:
    stage = a_running_group(workers=1)
    newer = a_replica(0, incarnation=1)
    stage.replicas[newer.name] = newer
    assert newer.name in stage.settle().replicas


def test_what_has_ended_is_left_for_people_to_read() -> None:
    stage = a_running_group(workers=2)
    stage.change("worker-1", ended)
    assert "digits-worker-1-0" in stage.replicas


def test_a_slot_whose_replicas_end_at_once_is_given_time() -> None:
    stage = a_stage(workers=1, failurePolicy={"maxRestarts": 1000}).settle()
    created = []
    for _ in range(600):
        newest = stage.replica("worker-0")
        if newest.alive:
            created.append((stage.now - NOON).total_seconds())
            stage.replicas[newest.name] = rejected(newest)
        stage.wait(1)
    assert created[:5] == [0, 1, 6, 36, 66]
    assert len(created) < 25
    assert len(stage.replicas) <= 4, "the last few are kept for people to read"
    assert stage.wake_at


def test_a_replica_that_ends_after_a_long_life_is_replaced_at_once() -> None:
    stage = a_running_group(workers=1)
    for number in range(1, 6):
        stage.wait(300).change("worker-0", rejected)
        assert stage.replica("worker-0").incarnation == number
        stage.call_in().obey()


def rejected(replica: Replica) -> Replica:
    """By a node that has no room after all."""
    return dataclasses.replace(ended(replica, None, "OutOfcpu"), disruption="OutOfcpu")


def test_a_loss_explains_the_errors_of_its_peers() -> None:
    stage = a_running_group(workers=2)
    lost = evicted(stage.replica("worker-1"))
    stage.replicas[lost.name] = lost
    stage.rank_dies("worker-0", a_death())
    assert stage.status.restarts[-1].failure_class == "Disruption"


def test_a_job_of_one_worker_survives_its_loss() -> None:
    stage = a_running_group(workers=1).vanish("worker-0").call_in().obey()
    assert (stage.status.phase, stage.status.attempt) == (Phase.RUNNING, 2)
