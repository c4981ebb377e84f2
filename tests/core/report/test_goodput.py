"""Where the time went: accounts that add up to the wall time, whatever happens."""

# ruff: noqa: D102  the rules are named after what they do

import dataclasses
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from trainmaster.api.job_states import Phase
from trainmaster.api.status import Goodput
from trainmaster.core.failures import ledger
from trainmaster.core.report.story import story
from trainmaster.wire import messages
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import CheckpointRecord

from tests.builders import NOON, a_death, an_error, deleting, evicted
from tests.core.stage import Stage, a_running_group, a_stage


def goodput(stage: Stage) -> Goodput:
    """As it stands written."""
    assert stage.status.goodput
    return stage.status.goodput


def saying_of_itself(stage: Stage, **members: object) -> Stage:
    """All ranks tell this with their next words; nobody rings."""
    for name, replica in stage.replicas.items():
        if replica.heartbeat and replica.heartbeat.ranks:
            ranks = tuple(dataclasses.replace(rank, **members) for rank in replica.heartbeat.ranks)  # type: ignore[arg-type]
            stage.replicas[name] = dataclasses.replace(
                replica, heartbeat=dataclasses.replace(replica.heartbeat, ranks=ranks)
            )
    return stage


def test_an_undisturbed_life() -> None:
    stage = a_stage(workers=2).settle().wait(30).call_in().wait(2).obey(step=0)
    saying_of_itself(stage, step=700).wait(40)
    saying_of_itself(stage, save_seconds=3.5, step=999).wait(60).finish()
    spent = goodput(stage)
    assert (spent.waiting, spent.starting, spent.training, spent.saving) == (30, 2, 96.5, 3.5)
    assert (spent.recovering, spent.lost_work, spent.total) == (0, 0, 132)
    assert spent.share == "73%"


def test_steps_that_are_trained_again_are_lost_work() -> None:
    stage = a_running_group(workers=2, step=0).wait(100)
    record = CheckpointRecord(75, 0.0, "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    stage.rank_dies("worker-1", a_death(step=100)).wait(4).obey(step=76)
    spent = goodput(stage)
    assert (spent.training, spent.lost_work, spent.recovering) == (75, 25, 4)
    stage.wait(60).rank_dies("worker-1", a_death(attempt=2, step=135)).wait(1).obey(step=75)
    assert (goodput(stage).training, goodput(stage).lost_work) == (75, 85)


def test_the_ranks_memory_is_believed_where_they_went_on_from() -> None:
    stage = a_running_group(workers=2, step=0).wait(100).rank_dies("worker-1", a_death(step=100))
    assert stage.status.restarts[-1].steps_lost == 100
    for key in ("worker-0", "worker-1"):
        stage.obey(key, step=1, phase="load")
    saying_of_itself(stage, step=99, phase="train", resumed_step=98).wait(2)
    (line,) = stage.status.restarts
    assert (line.steps_lost, line.seconds_lost) == (2, 2.0)
    assert line.why == "Restarting from step 0 or a newer one in memory. It went on from step 98."
    assert (goodput(stage).training, goodput(stage).lost_work) == (98, 2)


def test_each_step_is_lost_once_however_many_failures_there_were_before_it_went_on() -> None:
    """A rank hangs; while the group gathers, a pod is lost, and the snapshots in its memory with it."""
    stage = a_running_group(workers=2, step=0).wait(100).rank_dies("worker-1", a_death(step=100))
    stage.vanish("worker-0").settle().call_in().settle()
    for key in ("worker-0", "worker-1"):
        stage.obey(key, step=1, phase="load")
    assert [line.steps_lost for line in stage.status.restarts] == [100, 0]
    saying_of_itself(stage, step=76, phase="train", resumed_step=75).wait(2)
    assert [line.steps_lost for line in stage.status.restarts] == [25, 0]
    assert goodput(stage).lost_work == 25


def test_steps_are_lost_once_where_a_replica_is_lost_while_ranks_load() -> None:
    """A rank is killed; its group is about to go on from memory when a pod is lost, and goes on from a checkpoint."""
    stage = a_running_group(workers=2, step=0).wait(100).rank_dies("worker-1", a_death(step=100))
    stage.obey("worker-0", step=1, phase="load").obey("worker-1", step=1, phase="load")
    at_work = messages.RankProgress(1, 100, resumed_step=100, phase="train")
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, ranks=(at_work,)))
    assert stage.status.phase == Phase.STARTING
    stage.vanish("worker-0").settle().call_in().settle()
    for key in ("worker-0", "worker-1"):
        stage.obey(key, step=1, phase="load")
    saying_of_itself(stage, step=76, phase="train", resumed_step=75).wait(2)
    assert [line.steps_lost for line in stage.status.restarts] == [25, 0]
    assert goodput(stage).lost_work == 25


def test_lines_of_an_operator_whose_clock_is_behind_stay_where_they_are() -> None:
    """The newer line has the older time."""
    stage = a_running_group(workers=2, step=0).wait(100).rank_dies("worker-1", a_death(step=100))
    (line,) = stage.status.restarts
    late = dataclasses.replace(line, time=stage.now - timedelta(hours=1), step=90, steps_lost=90)
    stage.job = stage.job.model_copy(update={"status": dataclasses.replace(stage.status, restarts=(line, late))})
    for key in ("worker-0", "worker-1"):
        stage.obey(key, step=1, phase="load")
    saying_of_itself(stage, step=99, phase="train", resumed_step=98).wait(2)
    assert [(one.step, one.steps_lost) for one in stage.status.restarts] == [(100, 2), (90, 90)]


def test_a_try_that_nobody_saw_train_has_lost_what_its_rank_says() -> None:
    """Its steps were few and fast: a heartbeat tells of its end first."""
    stage = a_running_group(workers=2, step=0).wait(100).rank_dies("worker-1", a_death(step=100))
    for key in ("worker-0", "worker-1"):
        stage.obey(key, step=1, phase="load")
    stage.rank_dies("worker-1", a_death(attempt=2, step=100))
    saying_of_itself(stage.obey(step=76), step=76, phase="train", resumed_step=75).wait(2)
    assert [line.steps_lost for line in stage.status.restarts] == [25, 25]


def test_a_group_that_is_through_before_it_is_seen_to_train_closes_the_ledger() -> None:
    """Few steps were left, and they were fast."""
    stage = a_running_group(workers=2, step=0).wait(100).rank_dies("worker-1", a_death(step=100)).wait(4)
    stage.obey("worker-0", step=98, phase="load").obey("worker-1", step=98, phase="load")
    saying_of_itself(stage, step=98, phase="load", resumed_step=98).wait(1).finish()
    (line,) = stage.status.restarts
    assert (stage.status.phase, line.steps_lost, line.seconds_lost) == ("Succeeded", 2, 5.0)
    assert (goodput(stage).training, goodput(stage).lost_work, goodput(stage).recovering) == (98, 2, 5)


def test_a_run_that_goes_on_where_another_was_killed_in_a_restart_learns_what_was_lost() -> None:
    stage = a_running_group(workers=2, step=0).wait(100).rank_dies("worker-1", a_death(step=100))
    stage.job = stage.job.model_copy(
        update={"status": dataclasses.replace(stage.status, attempt=3, restarts=ledger.left_behind(stage.status))}
    )
    assert stage.status.restarts[-1].steps_lost == 100
    stage.settle().obey(step=98, phase="load")
    saying_of_itself(stage, step=99, phase="train", resumed_step=98).wait(2)
    (line,) = stage.status.restarts
    assert (stage.status.phase, line.steps_lost, line.seconds_lost) == ("Running", 2, 0.0)


def test_a_standstill_that_nobody_could_see_yet_was_no_training() -> None:
    """Of a hang, its agent says how long; of a lost node, the others do."""
    stage = a_running_group(workers=2, step=0).wait(100)
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=CheckpointRecord(100, 0.0, "abc")))
    stage.rank_dies("worker-1", a_death(step=100, hung=True, overdue_seconds=20.0)).wait(4).obey(step=100)
    hung = stage.status.restarts[-1]
    assert (hung.seconds_to_detect, hung.seconds_lost) == (20, 24)
    assert (goodput(stage).training, goodput(stage).recovering) == (80, 24)
    saying_of_itself(stage, overdue_seconds=30.04).wait(50)
    stage.change("worker-0", deleting).wait(5).call_in().wait(1).obey(step=100)
    lost = stage.status.restarts[-1]
    assert (lost.seconds_to_detect, lost.seconds_lost) == (30, 36)
    assert (goodput(stage).training, goodput(stage).recovering, goodput(stage).total) == (100, 60, 160)
    assert "36 s until the next step (30 s of them before it was seen)." in "\n".join(story(stage.status))


def test_while_one_rank_trains_the_group_does_not_stand_still() -> None:
    stage = saying_of_itself(a_running_group(workers=3, step=0), overdue_seconds=30.0).wait(100)
    ranks = (messages.RankProgress(1, 40, overdue_seconds=0.01),)
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, ranks=ranks))
    stage.change("worker-0", deleting).wait(5).call_in().wait(1).obey(step=1)
    assert stage.status.restarts[-1].seconds_to_detect is None
    assert goodput(stage).recovering == 6


@pytest.mark.parametrize("told", [-5.0, 1e300, float("inf"), float("nan")])
def test_what_ranks_say_of_a_standstill_is_bounded_by_the_time_that_there_was(told: float) -> None:
    stage = saying_of_itself(a_running_group(workers=2), overdue_seconds=told).wait(20)
    stage.rank_dies("worker-0", a_death(overdue_seconds=told)).wait(3).obey()
    assert 0 <= (stage.status.restarts[-1].seconds_to_detect or 0) <= 20
    assert goodput(stage).total == 23


def test_the_cause_of_a_symptom_does_not_add_the_time_since_to_the_standstill() -> None:
    stage = saying_of_itself(a_running_group(workers=3, step=0), overdue_seconds=7.0).wait(100)
    echo = an_error("Connection closed by peer [10.0.0.2]:4001", step=99, kind="RuntimeError")
    stage.rank_dies("worker-0", echo).wait(2)
    assert stage.status.restarts[-1].seconds_to_detect == 7
    saying_of_itself(stage, overdue_seconds=9.0).rank_dies("worker-1", a_death(step=99)).wait(1).obey(step=100)
    (line,) = stage.status.restarts
    assert (line.failure_class, line.seconds_to_detect, line.seconds_lost) == ("Signal", 7, 10)


def test_an_older_checkpoint_than_the_try_began_from_takes_from_what_was_before() -> None:
    stage = a_running_group(workers=1, step=0).wait(100)
    for attempt, step in ((1, 100), (2, 150)):
        stage.rank_dies("worker-0", a_death(attempt, step=step)).obey(phase="load")
        resumed = {1: 100, 2: 50}[attempt]
        saying_of_itself(stage, step=resumed, phase="train", resumed_step=resumed).wait(0).wait(50)
    stage.finish()
    assert goodput(stage).lost_work == 50 + 50
    assert goodput(stage).training == 50 + 50


def test_suspension_is_waiting_and_a_new_size_is_starting() -> None:
    stage = a_running_group(workers=2, step=0).wait(10).respec(suspend=True).wait(1000).respec(suspend=False)
    stage.call_in().wait(3).obey(step=0).wait(10).scale(1).wait(2).obey(step=0)
    spent = goodput(stage)
    assert (spent.waiting, spent.starting, spent.total) == (1000, 5, 1025)
    assert (spent.since, spent.time) == (NOON, NOON + timedelta(seconds=1025)), "all of its life"
    assert stage.status.start_time == NOON + timedelta(seconds=1010), "the deadline begins anew"


@pytest.mark.parametrize("told", [-5.0, 1e300, float("inf"), float("nan")])
def test_what_ranks_say_of_their_saves_is_bounded_by_the_time_that_there_was(told: float) -> None:
    stage = saying_of_itself(a_running_group(workers=1), save_seconds=told).wait(20).finish()
    assert goodput(stage).total == 20
    assert 0 <= goodput(stage).saving <= 20


def test_a_clock_that_jumps_back_books_nothing() -> None:
    stage = saying_of_itself(a_running_group(workers=1), step=40).wait(20)
    stage.now -= timedelta(hours=5)
    stage.rank_dies("worker-0", a_death()).wait(3).obey()
    assert goodput(stage).total == 23


def test_it_costs_no_write() -> None:
    stage = a_running_group(workers=4).wait(5)
    before = len(stage.writes)
    stage.wait(600)
    assert len(stage.writes) == before


class Accounts(RuleBasedStateMachine):
    """Random histories, with operators that forget all but the status."""

    stage: Stage

    @initialize(workers=st.integers(1, 3))
    def begin(self, workers: int) -> None:
        self.stage = a_stage(workers, failurePolicy={"maxRestarts": 40}).settle()

    @rule(seconds=st.sampled_from([0.001, 0.75, 3, 11, 3600]))
    def wait(self, seconds: float) -> None:
        self.stage.wait(seconds)

    @rule(seconds=st.sampled_from([1, 30]))
    def nobody_looks(self, seconds: float) -> None:
        self.stage.now += timedelta(seconds=seconds)

    @rule(step=st.integers(0, 999), save=st.floats(0, 50), start=st.none() | st.floats(0, 50))
    def train(self, step: int, save: float, start: float | None) -> None:
        self.stage.train(step)
        saying_of_itself(self.stage, step=step, save_seconds=save, start_seconds=start)

    @rule(step=st.integers(0, 999), resumed=st.none() | st.integers(-1, 2000))
    def a_rank_dies(self, step: int, resumed: int | None) -> None:
        beat = self._first()
        if beat and beat.state == AgentState.RUNNING:
            report = a_death(step=step) if step % 2 else an_error(f"error {'abc'[step % 3]}", step=step)
            self.stage.rank_dies("worker-0", dataclasses.replace(report, attempt=beat.attempt))
        self.stage.obey(phase="load")
        saying_of_itself(self.stage, resumed_step=resumed)

    @rule(how=st.sampled_from([evicted, deleting]))
    def a_pod_goes(self, how: object) -> None:
        if self._first():
            self.stage.change("worker-0", how)  # type: ignore[arg-type]

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.stage.respec(suspend=suspend)

    @rule(workers=st.integers(1, 3))
    def scale(self, workers: int) -> None:
        self.stage.scale(workers)

    @rule()
    def operator_restarts(self) -> None:
        self.stage.operator_restarts()

    @rule()
    def finish(self) -> None:
        if all(
            r.heartbeat and r.heartbeat.state == AgentState.RUNNING for r in self.stage.replicas.values() if r.alive
        ):
            self.stage.finish()

    def _first(self) -> messages.Heartbeat | None:
        living = [r for r in self.stage.replicas.values() if r.alive and r.index == 0]
        return living[-1].heartbeat if living else None

    @invariant()
    def they_add_up(self) -> None:
        status = self.stage.status
        if status.goodput and status.goodput.time:
            assert status.goodput.since == NOON
            wall = (status.goodput.time - NOON).total_seconds()
            assert abs(status.goodput.total - wall) <= max(0.01 * wall, 0.02)
            assert not status.finished or status.completion_time == status.goodput.time
            assert min(status.goodput.training, status.goodput.lost_work) >= 0


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
