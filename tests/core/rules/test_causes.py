"""Echoes and causes: survivors' errors arrive first, and the ledger must name what really died."""

import dataclasses

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import ExitReport

from tests.builders import a_death, an_error, ended, evicted
from tests.core.rules.test_restarts import fail_and_go_on
from tests.core.stage import Stage, a_running_group


def an_echo(attempt: int = 1, step: int = 10) -> ExitReport:
    """What a survivor raises when its peer dies."""
    return an_error("Connection closed by peer [10.0.0.2]:1234", attempt, step, kind="RuntimeError")


def test_of_two_reports_at_once_the_cause_is_named() -> None:
    stage = a_running_group(workers=2)
    for key, report in (("worker-0", an_echo()), ("worker-1", an_error("out of ideas"))):
        name = stage.replica(key).name
        beat = stage.replicas[name].heartbeat
        assert beat
        told = dataclasses.replace(beat, state=AgentState.FAILED, exit=report)
        stage.replicas[name] = dataclasses.replace(stage.replicas[name], heartbeat=told)
    stage.settle()
    assert stage.status.restarts[-1].evidence == "ValueError: out of ideas (train.py:12 in step)"


def test_a_cause_that_is_told_later_takes_the_echo_s_line() -> None:
    stage = a_running_group(workers=2)
    stage.rank_dies("worker-0", an_echo())
    assert stage.status.restarts[-1].failure_class == "PeerLost"
    stage.rank_dies("worker-1", an_error("out of ideas"))
    (line,) = stage.status.restarts
    assert (line.failure_class, line.attempt, stage.status.restart_count) == ("PythonError", 1, 1)
    assert stage.status.attempt == 2, "the restart under way goes on"


def test_a_cause_that_would_repeat_itself_stops_the_restart_under_way() -> None:
    stage = a_running_group(workers=2)
    fail_and_go_on(stage, an_error("out of ideas", step=10), key="worker-1")
    stage.rank_dies("worker-0", an_echo(attempt=2, step=10))
    before = stage.status.phase
    assert before == Phase.STARTING
    stage.rank_dies("worker-1", an_error("out of ideas", attempt=2, step=10))
    assert stage.status.phase == Phase.FAILED


def test_a_lost_node_costs_no_budget_though_its_peers_cried_first() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 1})
    for _ in range(3):
        stage.rank_dies("worker-0", an_echo(attempt=stage.status.attempt))
        stage.change("worker-1", evicted)
        stage.wait(60).call_in().obey(step=10)
    assert stage.status.phase == Phase.RUNNING
    assert [line.failure_class for line in stage.status.restarts] == ["Disruption"] * 3
    assert stage.status.restart_count == 3


def test_a_container_that_was_killed_is_counted_once_though_its_peers_cried_first() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 1})
    stage.rank_dies("worker-0", an_echo())
    stage.obey("worker-0", phase="load")  # the others try already
    stage.change("worker-1", lambda replica: ended(replica, 137, "OOMKilled"))
    stage.wait(60).call_in().obey(step=10)
    assert [line.failure_class for line in stage.status.restarts] == ["OutOfMemory"]
    assert (stage.status.phase, stage.status.restart_count) == (Phase.RUNNING, 1)


def test_a_pod_that_was_gone_before_anybody_looked_costs_no_budget_either() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 1})
    stage.rank_dies("worker-0", an_echo()).vanish("worker-1").wait(60).call_in().obey(step=10)
    assert [line.failure_class for line in stage.status.restarts] == ["ReplicaDeleted"]
    assert stage.created[-1] == "digits-worker-1-1"


def test_an_echo_without_a_cause_counts() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 1})
    fail_and_go_on(stage, an_echo())
    assert budget_is_used_up(stage.rank_dies("worker-0", an_echo(attempt=2)))
    assert stage.rank_dies("worker-1", an_echo(attempt=2)).status.phase == Phase.FAILED
    assert stage.status.restart_count == 1


def budget_is_used_up(stage: Stage) -> bool:
    """The echo would end the job, so its cause is waited for: nobody is told to run."""
    told = {orders.verb for orders in stage.orders.values()}
    line = stage.status.restarts[-1]
    return (stage.status.phase, line.decision, told) == (Phase.RESTARTING, "Wait", {Verb.WAIT})


def test_an_echo_does_not_end_a_job_whose_pod_is_being_evicted() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0})
    assert budget_is_used_up(stage.rank_dies("worker-0", an_echo()))
    stage.change("worker-1", evicted)
    assert stage.call_in().obey().status.phase == Phase.RUNNING
    assert [line.failure_class for line in stage.status.restarts] == ["Disruption"]
    assert stage.status.restart_count == 1


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize(("budget", "phase"), [(0, Phase.RESTARTING), (1, Phase.STARTING)])
def test_a_cause_that_is_scaled_away_leaves_nobody_to_blame(budget: int, phase: str, workers: int) -> None:
    stage = a_running_group(workers=3, failurePolicy={"maxRestarts": budget})
    stage.rank_dies("worker-0", an_echo())
    assert stage.status.phase == phase
    stage.scale(workers).call_in().obey()
    assert (stage.status.phase, stage.status.restart_count) == (Phase.RUNNING, 1)
    assert [line.failure_class for line in stage.status.restarts] == ["RosterChanged"]
    assert "before the job was resized" in (stage.status.restarts[-1].why or "")


def test_who_has_left_the_attempt_behind_was_not_the_cause() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0}).rank_dies("worker-0", an_echo())
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, state=AgentState.WAITING, attempt=2))
    assert stage.status.phase == Phase.FAILED
    assert "maxRestarts" in (stage.status.message or "")


def test_who_never_speaks_is_not_waited_for_without_end() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0, "startSeconds": 100})
    assert budget_is_used_up(stage.rank_dies("worker-0", an_echo()).wait(99))
    assert stage.wait(1).status.phase == Phase.FAILED


def test_a_cause_that_is_the_job_s_own_ends_the_wait_and_the_job() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0}).rank_dies("worker-0", an_echo())
    stage.rank_dies("worker-1", a_death())
    assert (stage.status.phase, stage.status.restarts[-1].failure_class) == (Phase.FAILED, "Signal")


def test_once_training_has_gone_on_the_line_stands() -> None:
    stage = a_running_group(workers=2)
    fail_and_go_on(stage, an_echo())
    stage.vanish("worker-1")
    assert [line.failure_class for line in stage.status.restarts] == ["PeerLost", "ReplicaDeleted"]


def test_a_line_that_never_saw_training_again_still_tells_its_seconds() -> None:
    stage = a_running_group(workers=1)
    stage.rank_dies("worker-0", a_death(attempt=1)).wait(3)
    stage.obey(phase="load").rank_dies("worker-0", a_death(attempt=2)).wait(5)
    stage.obey()
    assert [line.seconds_lost for line in stage.status.restarts] == [3.0, 5.0]
