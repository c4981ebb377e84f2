"""What `kubectl describe` tells of a job's life: few events, each once, in words."""

from tests.builders import a_death, ended, evicted, pending
from tests.core.members_stage import a_parameter_server_job
from tests.core.stage import Stage, a_running_group, a_stage


def told(stage: Stage) -> list[str]:
    """The reasons of all events so far."""
    return [event.reason for event in stage.events]


def test_a_quiet_life_has_one_event() -> None:
    stage = a_running_group(workers=4).finish().wait(100)
    assert told(stage) == ["AllWorkersFinished"]
    assert {event.type for event in stage.events} == {"Normal"}


def test_a_restart_is_told_with_its_cause() -> None:
    stage = a_running_group(workers=2).rank_dies("worker-1", a_death(rank=1)).obey()
    assert told(stage) == ["Restarting", "Running"]
    assert stage.events[0].type == "Warning"
    assert stage.events[0].message == (
        "Attempt 2: worker-1 rank 1: rank 1 ended with SIGKILL. Restarting from step 0 or a newer one in memory."
    )


def test_a_lost_replica_is_told_once() -> None:
    assert told(a_running_group(workers=2).change("worker-1", evicted)) == ["Restarting"]
    assert told(a_stage(workers=2).settle().change("worker-1", evicted)) == ["ReplicaReplaced"]


def test_no_replacement_is_told_that_is_never_made() -> None:
    through = a_running_group(workers=2).wait(20).finish("worker-1").change("worker-1", evicted)
    assert told(through) == ["WorkerFinished"]
    over = a_running_group(workers=2, failurePolicy={"maxRestarts": 0}).change("worker-1", ended)
    assert told(over) == ["RestartsExhausted"]
    assert told(a_parameter_server_job(workers=3).scale(2)) == ["MemberDismissed"]


def test_a_replica_that_is_lost_between_start_and_first_step_is_told_too() -> None:
    assert told(a_stage(workers=2).settle().call_in().change("worker-1", evicted)) == ["Restarting"]


def test_an_obstacle_is_told_once() -> None:
    stage = a_stage(workers=2).settle()
    for _ in range(5):
        stage.change("worker-1", lambda replica: pending(replica, "ImagePullBackOff", "no such image")).wait(10)
    assert told(stage) == ["ImagePullBackOff"]
    assert "spec.workers.image" in stage.events[0].message


def test_failure_suspension_and_resumption_are_told() -> None:
    stage = a_running_group(workers=1, failurePolicy={"maxRestarts": 0})
    stage.respec(suspend=True).respec(suspend=False).train().rank_dies("worker-0", a_death(attempt=2))
    assert told(stage) == ["Suspended", "Running", "RestartsExhausted"]
    assert stage.events[-1].type == "Warning"
