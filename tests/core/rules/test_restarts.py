"""A rank dies: the next attempt in the same pods, until the budget or the evidence says stop."""

import dataclasses

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import CheckpointRecord, ExitReport

from tests.builders import NOON, a_death, a_job, an_error
from tests.core.stage import Stage, a_running_group


def fail_and_go_on(stage: Stage, report: ExitReport, key: str = "worker-0") -> Stage:
    """A rank dies; if the job goes on, everybody trains again."""
    stage.rank_dies(key, dataclasses.replace(report, attempt=stage.status.attempt))
    return stage if stage.status.finished else stage.wait(60).obey(step=report.step)


def test_a_dead_rank_raises_the_attempt_and_keeps_the_pods() -> None:
    stage = a_running_group(workers=2, step=10)
    pods = set(stage.replicas)
    stage.rank_dies("worker-1", a_death(step=10))
    assert [status.phase for status in stage.writes[-2:]] == [Phase.RESTARTING, Phase.STARTING]
    assert (stage.status.attempt, stage.status.restart_count) == (2, 1)
    assert set(stage.replicas) == pods
    assert {(orders.verb, orders.attempt) for orders in stage.orders.values()} == {(Verb.RUN, 2)}


def test_the_new_attempt_is_written_before_it_is_ordered() -> None:
    stage = a_running_group(workers=1)
    stage.orders.clear()
    beat = stage.replica("worker-0").heartbeat
    assert beat
    dying = dataclasses.replace(beat, state=AgentState.FAILED, exit=a_death())
    stage.replicas = {name: dataclasses.replace(r, heartbeat=dying) for name, r in stage.replicas.items()}
    decision = stage.turn()
    assert decision.status.attempt == 2
    assert not decision.actions
    assert not stage.orders


def test_the_new_attempt_meets_elsewhere() -> None:
    stage = a_running_group(workers=2)
    before = stage.orders[stage.replica("worker-0").uid].roster
    stage.rank_dies("worker-1", a_death())
    after = stage.orders[stage.replica("worker-0").uid].roster
    assert before
    assert after
    assert before.rendezvous != after.rendezvous


def test_the_ledger_tells_what_died_and_what_it_cost() -> None:
    stage = a_running_group(workers=2, step=72)
    record = CheckpointRecord(50, 0.0, "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    stage.rank_dies("worker-1", a_death(step=73, rank=1))
    stage.wait(4).obey(step=51)
    (line,) = stage.status.restarts
    assert (line.attempt, line.failure_class, line.replica, line.node) == (1, "Signal", "worker-1 rank 1", "node-1")
    assert (line.exit, line.step, line.steps_lost, line.seconds_lost) == ("SIGKILL", 73, 23, 4.0)
    assert (line.decision, line.why) == ("Restart", "Restarting from step 50 or a newer one in memory.")


_TOP_K = {"type": "AllReduce", "compression": "TopK"}
_TPU = {"gpus": 4, "accelerator": "tpu"}


@pytest.mark.parametrize(
    ("spec", "after_a_rank", "after_a_pod"),
    [
        ({}, True, True),
        ({"strategy": {"type": "LocalSGD"}}, True, False),
        ({"strategy": {"type": "FullySharded"}}, True, True),
        ({"strategy": _TOP_K}, True, False),
        ({"workers": _TPU}, False, False),
        ({"checkpoint": {"memoryEverySteps": 0}}, False, False),
    ],
)
def test_memory_is_named_where_it_may_have_a_newer_state(
    spec: dict[str, object], after_a_rank: bool, after_a_pod: bool
) -> None:
    job = a_job().where(**spec)
    rank = Stage(job.with_workers(2)).train().rank_dies("worker-0", a_death())
    pod = Stage(job.with_workers(2)).train().vanish("worker-0")
    both = Stage(job.with_workers(1)).train().vanish("worker-0")
    said = ["a newer one in memory" in stage.status.restarts[-1].why for stage in (rank, pod, both)]
    assert said == [after_a_rank, after_a_pod, False]


@pytest.mark.parametrize(("lost", "there"), [((0,), True), ((0, 2), True), ((1, 2), False), ((3, 0), False)])
def test_of_a_divided_model_memory_has_what_no_two_neighbours_lost(lost: tuple[int, ...], there: bool) -> None:
    stage = Stage(a_job().where(strategy={"type": "FullySharded"}).with_workers(4)).train()
    for index in lost:
        del stage.replicas[stage.replica(f"worker-{index}").name]
    assert ("a newer one in memory" in stage.settle().status.restarts[-1].why) == there


def test_a_failure_is_counted_once_however_often_it_is_told() -> None:
    stage = a_running_group(workers=2)
    stage.rank_dies("worker-0", a_death(attempt=1))
    stage.rank_dies("worker-1", a_death(attempt=1, rank=1))
    assert (stage.status.attempt, stage.status.restart_count, len(stage.status.restarts)) == (2, 1, 1)


def test_an_agent_that_cannot_say_how_its_rank_died_is_believed() -> None:
    stage = a_running_group(workers=1)
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, state=AgentState.FAILED))
    assert stage.status.attempt == 2
    assert stage.status.restarts[-1].failure_class == "ProcessExit"


def test_the_budget_ends_the_job() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 2})
    for _ in range(3):
        fail_and_go_on(stage, a_death(step=10))
    assert (stage.status.phase, stage.status.reason) == (Phase.FAILED, "RestartsExhausted")
    assert (stage.status.restart_count, stage.status.attempt) == (2, 3)
    assert stage.status.restarts[-1].decision == "Stop"
    assert "maxRestarts" in (stage.status.message or "")


def test_where_the_budget_ends_the_job_the_last_failure_has_its_cure() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0})
    stage.rank_dies("worker-0", a_death(signal="SIGKILL", out_of_memory=True))
    assert stage.status.reason == "RestartsExhausted"
    assert "is used up. Raise spec.workers.memory" in (stage.status.message or "")


def test_no_budget_means_no_restart() -> None:
    stage = a_running_group(workers=1, failurePolicy={"maxRestarts": 0})
    assert fail_and_go_on(stage, a_death()).status.phase == Phase.FAILED


def test_progress_fills_the_budget_up_again() -> None:
    stage = a_running_group(workers=1, failurePolicy={"maxRestarts": 1}, checkpoint={"everySteps": 10})
    for step in (5, 105, 205, 305):
        fail_and_go_on(stage, a_death(step=step))
    assert (stage.status.phase, stage.status.restart_count) == (Phase.RUNNING, 4)
    assert fail_and_go_on(stage, a_death(step=306)).status.phase == Phase.FAILED


def a_full_ledger(failure_class: str) -> Stage:
    """A job that trains after one counted failure and fifty more of this class, all at step 10."""
    line = {"attempt": 1, "time": NOON.isoformat(), "class": failure_class, "step": 10, "secondsLost": 1.0}
    lines = [{**line, "class": "Signal"}, *[line] * 49]
    job = a_job().with_failure_policy(maxRestarts=1 if failure_class == "Disruption" else 1000)
    return Stage(job.at(Phase.PENDING, attempt=51, restarts=lines, restartCount=50)).train(step=10)


def test_disruptions_never_crowd_counted_failures_out_of_the_ledger() -> None:
    stage = a_full_ledger("Disruption")
    for _ in range(3):
        stage.vanish("worker-0").call_in().obey(step=10)
    assert stage.status.phase == Phase.RUNNING
    assert (len(stage.status.restarts), stage.status.restarts[0].failure_class) == (50, "Signal")
    assert fail_and_go_on(stage, a_death(step=10)).status.reason == "RestartsExhausted"


def test_a_budget_beyond_the_ledger_s_length_still_ends() -> None:
    assert fail_and_go_on(a_full_ledger("Signal"), a_death(step=10)).status.reason == "RestartsExhausted"


def test_the_same_error_twice_without_progress_stops_the_job() -> None:
    stage = a_running_group(workers=2)
    fail_and_go_on(stage, an_error("bad batch 7 at 0xdead", step=73))
    fail_and_go_on(stage, an_error("bad batch 9 at 0xbeef", step=73))
    assert (stage.status.phase, stage.status.restart_count) == (Phase.FAILED, 1)
    assert "came twice at step 73" in (stage.status.message or "")


SCRIPT = {"command": ["python", "train.py"]}
HOUR = 3600


def test_a_script_tells_no_steps_so_a_day_of_running_fills_the_budgets_up_again() -> None:
    stage = a_running_group(workers=2, training=SCRIPT, failurePolicy={"maxRestarts": 1})
    for _ in range(3):
        fail_and_go_on(stage, an_error(step=0)).wait(24 * HOUR)
    assert (stage.status.phase, stage.status.restart_count) == (Phase.RUNNING, 3)
    fail_and_go_on(stage, an_error(step=0)).wait(23 * HOUR)
    fail_and_go_on(stage, an_error(step=0))
    assert (stage.status.phase, stage.status.reason) == (Phase.FAILED, "PythonError")
    assert "The same error came twice within a day of running; a restart" in (stage.status.message or "")


def test_nor_is_a_suspension() -> None:
    stage = fail_and_go_on(a_running_group(workers=2, training=SCRIPT), an_error(step=0))
    stage.respec(suspend=True).wait(48 * HOUR).respec(suspend=False).call_in().obey(step=0)
    assert fail_and_go_on(stage, an_error(step=0)).status.phase == Phase.FAILED


def test_a_day_of_waiting_for_replicas_is_none_of_running() -> None:
    stage = a_running_group(workers=2, training=SCRIPT)
    stage.rank_dies("worker-0", an_error(step=0)).vanish("worker-0").wait(48 * HOUR).call_in().obey(step=0)
    assert fail_and_go_on(stage, an_error(step=0)).status.phase == Phase.FAILED


def test_a_message_that_no_encoding_can_say_is_still_recognised() -> None:
    stage = a_running_group(workers=1)
    for _ in range(2):
        fail_and_go_on(stage, an_error("no such file: caf\udce9", step=73))
    assert stage.status.phase == Phase.FAILED
    assert stage.status.restarts[0].evidence == "ValueError: no such file: caf? (train.py:12 in step)"


def test_a_disruption_between_does_not_hide_that_it_was_the_same() -> None:
    stage = a_running_group(workers=1)
    fail_and_go_on(stage, an_error(step=73))
    stage.vanish("worker-0").wait(60).call_in().obey(step=73)
    assert fail_and_go_on(stage, an_error(step=73)).status.phase == Phase.FAILED


@pytest.mark.parametrize(
    "second",
    [an_error("bad batch 7", step=74), an_error("another", step=73), a_death(step=73)],
    ids=["it came further", "another error", "a signal"],
)
def test_what_is_not_the_same_again_is_tried_again(second: ExitReport) -> None:
    stage = a_running_group(workers=1)
    fail_and_go_on(stage, an_error("bad batch 7", step=73))
    assert fail_and_go_on(stage, second).status.phase == Phase.RUNNING


def test_a_configuration_that_cannot_work_is_not_tried_twice() -> None:
    stage = a_running_group(workers=1)
    fail_and_go_on(stage, ExitReport(attempt=1, rank=0, step=0, exit_code=78))
    assert (stage.status.phase, stage.status.reason, stage.status.attempt) == (Phase.FAILED, "BadConfiguration", 1)
    assert "resumeFrom" not in (stage.status.message or ""), "there is nothing to go on from"


def test_a_configuration_that_fails_after_steps_can_go_on_from_them() -> None:
    stage = a_running_group(workers=1)
    fail_and_go_on(stage, ExitReport(attempt=1, rank=0, step=73, exit_code=78))
    assert "spec.checkpoint.resumeFrom.path goes on" in (stage.status.message or "")


def test_an_old_report_is_history() -> None:
    stage = a_running_group(workers=2)
    fail_and_go_on(stage, a_death(attempt=1))
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, exit=a_death(attempt=1)))
    assert (stage.status.phase, stage.status.attempt) == (Phase.RUNNING, 2)
