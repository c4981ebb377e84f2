"""The labelled table: what happened, in the words that really come, and what must be made of it."""

import dataclasses

import pytest
from trainmaster.api.status import RestartRecord
from trainmaster.core.failures import budgets, classes, failures
from trainmaster.core.failures.failures import Failure
from trainmaster.core.states.observed import Replica
from trainmaster.wire.messages import CheckpointRecord, ErrorReport, ExitReport

from tests.builders import NOON, a_death, a_job, a_replica, a_slot, an_error, ended, evicted
from tests.core.failures.failure_ends import RANKS, REPLICAS
from tests.core.failures.failure_errors import ERRORS
from tests.core.failures.failure_labels import Label
from tests.core.failures.failure_services import SERVICES
from tests.core.stage import Stage, a_running_group

SLOT = a_slot(a_replica())
JOB = a_job().with_failure_policy(maxRestarts=10).build()


def test_there_are_enough_of_them() -> None:
    assert len(ERRORS) + len(SERVICES) + len(RANKS) + len(REPLICAS) >= 250
    labelled = {label.failure_class for _, _, label in ERRORS + SERVICES} | {
        label.failure_class for _, label in RANKS + REPLICAS
    }
    of_several_words = {classes.ROSTER_CHANGED, classes.ENDED_EARLY}  # no single end tells of them
    assert labelled == {one.name for one in classes.CLASSES} - of_several_words


@pytest.mark.parametrize(("kind", "message", "label"), ERRORS + SERVICES)
def test_an_error(kind: str, message: str, label: Label) -> None:
    report = ExitReport(1, 0, 10, exit_code=1, error=ErrorReport(kind, message, "train.py:9 in step"))
    assert judged(failures.of_rank(SLOT, report)) == label


@pytest.mark.parametrize(("report", "label"), RANKS)
def test_the_end_of_a_rank(report: ExitReport, label: Label) -> None:
    assert judged(failures.of_rank(SLOT, report)) == label


@pytest.mark.parametrize(("replica", "label"), REPLICAS)
def test_the_end_of_a_replica(replica: Replica, label: Label) -> None:
    assert judged(failures.of_replica(replica, step=10)) == label


def judged(failure: Failure) -> Label:
    """What is made of it, once and a second time."""
    first = budgets.reason_to_stop(JOB, (), failure, NOON)
    again = budgets.reason_to_stop(JOB, (a_line(failure),), failure, NOON)
    costs = budgets.budget_used(JOB, (a_line(failure),), failure.step) == 1
    return Label(failure.failure_class, "Stop" if first else "Restart", "Stop" if again else "Restart", costs)


def a_line(failure: Failure) -> RestartRecord:
    """The ledger's line of it."""
    return RestartRecord(
        attempt=1,
        time=NOON,
        failure_class=failure.failure_class,
        step=failure.step,
        fingerprint=failure.fingerprint,
    )


# What a class means over time: (class, its own limit, without progress).


OWN_BUDGETS = [
    ("Hang", 3),
    ("Stalled", 3),
    ("NonFiniteLoss", 1),
    ("CorruptCheckpoint", 2),
    ("DeviceFault", 6),
    ("Infrastructure", 10),
    ("ServiceUnavailable", 30),
]


@pytest.mark.parametrize(("failure_class", "limit"), OWN_BUDGETS)
def test_a_budget_of_its_own_ends_and_is_refilled_by_progress(failure_class: str, limit: int) -> None:
    failure = Failure(failure_class, "worker-0", "node-0", "", "", 10, "never the same")
    job = a_job().with_failure_policy(maxRestarts=0).build()
    lines = [dataclasses.replace(failure, step=step, fingerprint=str(step)) for step in range(10, 10 + limit)]
    assert budgets.reason_to_stop(job, [a_line(line) for line in lines[1:]], failure, NOON) is None, (
        "maxRestarts is not its"
    )
    stop = budgets.reason_to_stop(job, [a_line(line) for line in lines], failure, NOON)
    assert stop
    assert (stop.reason, classes.class_of(failure_class).cure in stop.why) == (failure_class, True)
    further = dataclasses.replace(failure, step=10 + limit + 10 * 50)
    assert budgets.reason_to_stop(job, [a_line(line) for line in lines], further, NOON) is None


def test_memory_twice_at_one_step_says_what_to_raise() -> None:
    stage = a_running_group(workers=2)
    for attempt in (1, 2):
        stage.rank_dies("worker-1", a_death(attempt, step=73, out_of_memory=True)).wait(60).obey(step=73)
    assert (stage.status.phase, stage.status.reason) == ("Failed", "OutOfMemory")
    assert "Raise spec.workers.memory" in (stage.status.message or "")


def test_a_crash_is_tried_once_more_than_an_exception() -> None:
    stage = a_running_group(workers=1)
    for attempt in (1, 2, 3):
        assert stage.status.phase == "Running"
        stage.rank_dies("worker-0", a_death(attempt, step=73, signal="SIGSEGV")).wait(60).obey(step=73)
    assert (stage.status.phase, stage.status.reason) == ("Failed", "Crash")


def test_an_eviction_that_is_first_seen_as_a_rank_s_end_costs_nothing() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0})
    stage.rank_dies("worker-1", ExitReport(1, 1, 10, signal="SIGTERM"))
    assert stage.status.phase == "Restarting"
    assert stage.change("worker-1", evicted).call_in().obey().status.phase == "Running"
    assert [line.failure_class for line in stage.status.restarts] == ["Disruption"]


def test_who_hung_is_named_and_not_who_waited_for_it() -> None:
    stage = a_running_group(workers=3, failurePolicy={"maxRestarts": 0})
    for key, waiting in (("worker-0", True), ("worker-2", True), ("worker-1", False)):
        stage.rank_dies(key, a_death(step=50, hung=True, waiting=waiting, stacks=f"stack of {key}"))
    (line,) = stage.status.restarts
    assert (line.failure_class, line.node, line.exit, line.stacks) == ("Hang", "node-1", "hung", "stack of worker-1")


def test_who_waits_for_a_slow_peer_is_not_restarted_and_a_deadlock_is() -> None:
    """A peer that does not say that it waits, too, may be compiling, or at its storage."""
    stage = a_running_group(workers=3).finish("worker-2")
    stall = a_death(step=50, hung=True, waiting=True, stacks="in all_reduce")

    def told(key: str, report: ExitReport | None) -> str:
        return stage.say(key, lambda beat: dataclasses.replace(beat, stalled=report)).status.phase

    assert told("worker-0", stall) == "Running"
    assert (told("worker-0", None), told("worker-1", stall)) == ("Running", "Running")
    assert told("worker-0", dataclasses.replace(stall, attempt=0)) == "Running", "an older one says nothing"
    assert told("worker-0", stall) != "Running"
    (line,) = stage.status.restarts
    assert (line.failure_class, line.stacks, stage.status.attempt) == ("Stalled", "in all_reduce", 2)


def test_a_worker_that_has_finished_is_not_waited_for_when_its_pod_has_gone() -> None:
    stage = a_running_group(workers=2).finish("worker-1")
    stage.change("worker-1", lambda replica: ended(replica, 0, "Completed"))
    assert (stage.status.phase, stage.status.done) == ("Running", ("worker-1",))
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, stalled=a_death(step=50, hung=True, waiting=True)))
    assert stage.status.phase == "Restarting"


def test_a_replica_whose_ranks_tell_nothing_is_not_waited_for() -> None:
    stage = a_running_group(workers=2)
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, ranks=()))
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, stalled=a_death(step=50, hung=True, waiting=True)))
    assert [line.failure_class for line in stage.status.restarts] == ["Stalled"]


@pytest.mark.parametrize(("waiting", "kind"), [(False, "Hang"), (True, "Stalled")])
def test_a_restart_for_a_hang_names_the_field_that_allows_more(waiting: bool, kind: str) -> None:
    stage, told = a_running_group(workers=1), "raise spec.failurePolicy.hangSeconds"
    stage.rank_dies("worker-0", a_death(step=50, hung=True, waiting=waiting))
    (line,) = stage.status.restarts
    assert (line.failure_class, line.decision, told in line.why) == (kind, "Restart", True)
    assert told in next(event.message for event in stage.events if event.reason == "Restarting")


def test_the_stacks_of_the_newest_hang_alone_are_kept_and_clipped() -> None:
    stage = a_running_group(workers=1)
    for attempt in (1, 2):
        stage.rank_dies("worker-0", a_death(attempt, hung=True, stacks="in train\n" * 10**5)).wait(1).obey(step=9)
    first, second = stage.status.restarts
    assert first.stacks is None
    assert second.stacks
    assert len(second.stacks) < 1600
    assert second.stacks.endswith("(the rest is in the agent's log)")


def test_workers_that_finish_while_another_fails_train_again_with_it() -> None:
    stage = a_running_group(workers=3).finish("worker-0", "worker-2")
    assert stage.status.phase == "Running"
    stage.rank_dies("worker-1", a_death(step=990))
    assert (stage.status.phase, stage.status.attempt) == ("Starting", 2)


def test_only_some_workers_that_end_well_are_no_success() -> None:
    stage = a_running_group(workers=3).finish("worker-0", "worker-2").wait(1000)
    assert stage.status.phase == "Running"


def test_another_error_in_between_does_not_hide_that_it_was_the_same() -> None:
    same = Failure("PythonError", "worker-0", "", "", "", 73, "A")
    other = dataclasses.replace(same, fingerprint="B")
    further = dataclasses.replace(other, step=99)
    assert budgets.reason_to_stop(JOB, [a_line(same), a_line(other)], same, NOON)
    assert not budgets.reason_to_stop(JOB, [a_line(same), a_line(further)], same, NOON), "it had come further"


def test_a_class_that_nobody_knows_counts() -> None:
    lines = [RestartRecord(attempt=1, time=NOON, failure_class="Sabotage", step=10)] * 10
    failure = Failure("Signal", "worker-0", "", "", "", 10)
    assert budgets.reason_to_stop(JOB, lines, failure, NOON)


def test_a_loss_that_is_nan_is_tried_once_more_from_an_older_checkpoint() -> None:
    stage = a_running_group(workers=2, step=73)
    record = CheckpointRecord(50, 0.0, "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    nan = an_error("the loss of step 74 is nan", step=74, kind="NonFiniteLossError")
    stage.rank_dies("worker-1", nan)
    rosters = {orders.roster for orders in stage.orders.values()}
    assert [roster.resume_before for roster in rosters if roster] == [50]
    assert "older checkpoint than that of step 50" in stage.status.restarts[-1].why
    later = CheckpointRecord(100, 0.0, "def")
    stage.obey(step=60).say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=later)).wait(20)
    assert {orders.roster for orders in stage.orders.values()} == rosters, "the same all through the attempt"
    stage.rank_dies("worker-1", dataclasses.replace(nan, attempt=2))
    assert (stage.status.phase, stage.status.reason) == ("Failed", "NonFiniteLoss")
    assert "Lower the learning rate" in (stage.status.message or "")


def test_the_attempt_after_trusts_all_checkpoints_again() -> None:
    stage = a_running_group(workers=2, step=73)
    record = CheckpointRecord(50, 0.0, "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    stage.rank_dies("worker-1", an_error("nan", step=74, kind="NonFiniteLossError")).obey(step=60)
    stage.rank_dies("worker-1", a_death(attempt=2))
    assert [orders.roster.resume_before for orders in stage.orders.values() if orders.roster] == [None, None]


NAN = an_error("the loss of step 74 is nan", step=74, kind="NonFiniteLossError")


def nan_at_74(stage: Stage) -> Stage:
    """After a checkpoint at step 50, which may hold the cause."""
    record = CheckpointRecord(50, 0.0, "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    return stage.rank_dies("worker-1", NAN)


@pytest.mark.parametrize(("told", "heard"), [(60, 50), (60, None), (0, None)])
def test_the_rank_knows_the_storage_better_than_what_was_heard_of_it(told: int, heard: int | None) -> None:
    """A slow storage shows checkpoints late. Where there is none, training begins anew, and not from memory."""
    stage = a_running_group(workers=2, step=73)
    if heard is not None:
        record = CheckpointRecord(heard, 0.0, "abc")
        stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    assert NAN.error is not None
    error = dataclasses.replace(NAN.error, resume_before=told)
    stage.rank_dies("worker-1", dataclasses.replace(NAN, error=error))
    rosters = {(one.roster.resume_before, one.roster.doubted_attempt) for one in stage.orders.values() if one.roster}
    assert rosters == {(max(told, 1), 1)}


def resumes_before(stage: Stage) -> set[int | None]:
    """What the agents that live are told."""
    stage.settle().call_in()
    rosters = [stage.orders[replica.uid].roster for replica in stage.replicas.values() if replica.alive]
    assert all(rosters)
    return {roster.resume_before for roster in rosters if roster}


def test_a_failure_before_the_retry_trains_forgets_nothing() -> None:
    stage = nan_at_74(a_running_group(workers=2, step=73))
    assert resumes_before(stage.change("worker-0", evicted)) == {50}
    assert stage.status.attempt == 3
    assert "older checkpoint than that of step 50" in stage.status.restarts[-1].why
    stage.obey(step=20).rank_dies("worker-1", a_death(3, step=30))
    assert resumes_before(stage) == {50}, "what was saved at step 50 has not been saved anew"
    stage.obey(step=51).rank_dies("worker-1", a_death(4, step=51))
    assert resumes_before(stage) == {None}


def test_a_checkpoint_that_the_retry_has_saved_is_trusted() -> None:
    stage = nan_at_74(a_running_group(workers=2, step=73)).obey(step=20)
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=CheckpointRecord(100, 0.0, "def")))
    assert resumes_before(stage) == {50}, "the same all through the attempt"
    assert resumes_before(stage.rank_dies("worker-1", a_death(2))) == {None}


def test_a_peers_echo_that_came_first_hides_no_loss_that_was_nan() -> None:
    stage = a_running_group(workers=2, step=73)
    record = CheckpointRecord(50, 0.0, "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    stage.rank_dies("worker-0", an_error("Connection closed by peer", step=74, kind="RuntimeError"))
    stage.rank_dies("worker-1", NAN)
    assert (stage.status.attempt, len(stage.status.restarts)) == (2, 1)
    assert resumes_before(stage) == {50}
    assert stage.obey(step=20).status.phase == "Running"


@pytest.mark.parametrize("resize", [True, False])
def test_nor_does_an_attempt_that_follows_no_failure(resize: bool) -> None:
    stage = nan_at_74(a_running_group(workers=2, step=73))
    stage = stage.scale(3) if resize else stage.respec(suspend=True).respec(suspend=False)
    assert resumes_before(stage.call_in().obey(phase="load")) == {50}
    assert stage.status.attempt == 3
    assert resumes_before(stage.obey(step=20).scale(4).call_in().obey(phase="load")) == {50}
    assert resumes_before(stage.obey(step=60).scale(1).obey(phase="load")) == {None}
