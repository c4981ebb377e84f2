"""What people see: conditions, progress, the newest checkpoint, and how often that is written."""

import dataclasses
from datetime import timedelta

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.api.status import Condition, Waiting
from trainmaster.core import figures
from trainmaster.core.report.conditions import in_the_way
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import CheckpointRecord, RankProgress

from tests.builders import NOON, a_death, a_heartbeat, evicted, finished, pending, saying
from tests.core.stage import Stage, a_running_group, a_stage


def condition(stage: Stage, kind: str) -> Condition:
    """The condition of this type."""
    (found,) = [c for c in stage.status.conditions if c.type == kind]
    return found


def at_step(stage: Stage, step: int, **more: object) -> None:
    """All ranks reach this step; nobody rings."""
    for name, replica in stage.replicas.items():
        assert replica.heartbeat
        rank = RankProgress(replica.index, step, step_seconds=0.5, loss=1 / step)
        beat = dataclasses.replace(replica.heartbeat, ranks=(dataclasses.replace(rank, **more),))  # type: ignore[arg-type]
        stage.replicas[name] = dataclasses.replace(replica, heartbeat=beat)


# Conditions.


def test_conditions_say_what_holds_and_why() -> None:
    stage = a_stage(workers=2).settle().call_in("worker-0")
    ready = condition(stage, "ReplicasReady")
    assert (ready.status, ready.reason) == ("False", "WaitingForReplicas")
    assert condition(stage, "Training").status == "False"
    stage.call_in().obey()
    assert (condition(stage, "ReplicasReady").status, condition(stage, "Training").status) == ("True", "True")


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    stage = a_stage(workers=1).settle().wait(100).call_in()
    assert condition(stage, "ReplicasReady").last_transition_time == NOON + timedelta(seconds=100)
    assert condition(stage, "Training").last_transition_time == NOON
    stage.wait(10).obey().wait(50)
    assert condition(stage, "ReplicasReady").last_transition_time == NOON + timedelta(seconds=100)
    assert condition(stage, "Training").last_transition_time == NOON + timedelta(seconds=110)


def test_the_end_is_a_condition_too() -> None:
    stage = a_running_group(workers=1).finish()
    assert condition(stage, "Succeeded").status == "True"
    assert condition(stage, "ReplicasReady").reason == "JobEnded"
    assert condition(stage, "Training").status == "False"


def test_suspension_leaves_its_trace() -> None:
    stage = a_running_group(workers=1).respec(suspend=True)
    assert condition(stage, "Suspended").status == "True"
    stage.respec(suspend=False)
    assert (condition(stage, "Suspended").status, condition(stage, "Suspended").reason) == ("False", "Resumed")
    assert condition(stage, "Suspended").message == "spec.suspend is false again."


def test_in_the_way_is_what_is_not_well_and_not_said_otherwise() -> None:
    stage = a_running_group(workers=1).respec(suspend=True)
    assert in_the_way(stage.status) == (), "nobody is waited for"
    stage.respec(suspend=False)
    assert "Suspended" not in {one.type for one in in_the_way(stage.status)}
    stage.settle().train()
    assert in_the_way(stage.status) == ()
    stage.respec(workers=stage.job.spec.workers.model_copy(update={"memory": "2Gi"}))
    assert [one.type for one in in_the_way(stage.status)] == ["SpecChanged"]
    stage.finish()
    assert in_the_way(stage.status) == ()


def test_who_is_missing_is_named_but_not_by_the_hundred() -> None:
    stage = a_stage(workers=100).settle().wait(5)
    assert stage.status.message == "Waiting for worker-0, worker-1, worker-2, worker-3 and 96 more."


def test_the_generation_that_the_status_speaks_of() -> None:
    stage = a_running_group(workers=1).respec(ttl_seconds_after_finished=10)
    assert stage.status.observed_generation == stage.job.metadata.generation == 2
    assert {c.observed_generation for c in stage.status.conditions} == {2}


# Progress.


def test_progress_is_the_first_rank_s_whose_word_is_of_one_moment() -> None:
    stage = a_running_group(workers=2)
    at_step(stage, 40)
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, ranks=(RankProgress(1, 38, loss=9.0),)))
    stage.wait(10)
    progress = stage.status.progress
    assert progress
    assert (progress.step, progress.total_steps, progress.loss, progress.eta) == (40, 1000, 0.025, "8m00s")


def test_a_script_whose_loss_is_none_any_more_does_not_show_an_old_one() -> None:
    """It has become NaN. After a restart the old one stays until there is a step."""
    stage = a_running_group(workers=1, training={"command": ["python", "train.py"]})
    shown = []
    for step, told in ((40, {}), (40, {"loss": None, "resumed_step": 40}), (50, {"loss": None, "resumed_step": 0})):
        at_step(stage, step, **told)
        stage.wait(10)
        assert stage.status.progress
        shown.append((stage.status.progress.step, stage.status.progress.loss))
    assert shown == [(40, 0.025), (40, 0.025), (50, None)]


def test_a_job_that_fails_shows_the_last_step_that_was_taken() -> None:
    """As one that fails a second after it has begun, before any other word of its steps was written."""
    stage = a_running_group(workers=1, step=1)
    at_step(stage, 20)
    stage.rank_dies("worker-0", a_death(step=20, signal=None, exit_code=78))
    assert stage.status.phase == "Failed"
    assert stage.status.progress
    assert (stage.status.progress.step, stage.status.progress.loss) == (20, 0.05)


def test_a_job_that_is_suspended_shows_the_step_that_its_ranks_have_saved() -> None:
    """They train on until they are asked to leave, and save then. Their pods are gone in a moment."""
    stage = a_running_group(workers=1, step=1)
    ((name, replica),) = stage.replicas.items()
    stage.respec(suspend=True)
    assert replica.heartbeat
    leaving = dataclasses.replace(replica.heartbeat, state=AgentState.LEAVING)
    stage.replicas[name] = dataclasses.replace(replica, heartbeat=leaving, deleting=True)
    at_step(stage, 20)
    stage.settle()
    del stage.replicas[name]
    stage.settle().wait(30)
    assert stage.status.phase == "Suspended"
    assert stage.status.progress
    assert (stage.status.progress.step, stage.status.progress.loss) == (20, 0.05)


def test_the_steps_that_epochs_take_are_those_that_the_ranks_tell() -> None:
    epochs = {"task": "a:B", "epochs": 3, "globalBatchSize": 8}
    stage = a_running_group(workers=1, training=epochs)
    at_step(stage, 40, total_steps=400)
    stage.wait(10)
    progress = stage.status.progress
    assert progress
    assert (progress.step, progress.total_steps, progress.eta) == (40, 400, "3m00s")


def test_the_rank_that_waits_longest_for_its_samples_is_told() -> None:
    stage = a_running_group(workers=2)
    at_step(stage, 40, data_share=0.2)
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, ranks=(RankProgress(1, 38, data_share=0.714),)))
    stage.wait(10)
    assert stage.status.progress
    assert stage.status.progress.waiting == Waiting(data=0.71)
    at_step(stage, 60, data_share=0.001)
    stage.wait(10)
    assert stage.status.progress.waiting is None


def test_loading_ranks_do_not_throw_progress_back() -> None:
    stage = a_running_group(workers=1, step=40).wait(10)
    at_step(stage, 1, phase="load")
    stage.wait(30)
    assert stage.status.progress
    assert (stage.status.progress.step, stage.status.progress.eta) == (40, None)


def test_progress_is_written_every_ten_seconds() -> None:
    stage = a_running_group(workers=2)
    written, began = [], stage.now
    for step in range(2, 2 + 600):
        before = len(stage.writes)
        at_step(stage, step)
        stage.now += timedelta(seconds=1)
        stage.turn()
        written += [(stage.now - began).seconds] * (len(stage.writes) - before)
    assert written[:4] == [10, 20, 30, 40]
    assert len(written) == 60


@pytest.mark.parametrize(("left", "waits"), [(4, 15), (15, 15), (16, 10), (600, 10)])
def test_an_end_that_is_near_tells_the_progress_too(left: int, waits: int) -> None:
    stage = a_running_group(workers=2)
    at_step(stage, 1000 - 2 * left)
    stage.wait(10)
    before = len(stage.writes)
    at_step(stage, 999)
    stage.wait(waits - 1)
    assert len(stage.writes) == before
    stage.wait(1)
    assert len(stage.writes) == before + 1


def test_ten_minutes_without_a_step_cost_no_write_and_few_looks() -> None:
    stage = a_running_group(workers=4).wait(5)
    before, looks, end = len(stage.writes), 0, stage.now + timedelta(seconds=600)
    while stage.wake_at and stage.wake_at <= end:
        stage.now = stage.wake_at
        stage.settle()
        looks += 1
    assert len(stage.writes) == before
    assert looks <= 600 / 5 + 1


def test_a_thousand_agents_that_call_in_one_by_one_cost_a_few_writes() -> None:
    stage = a_stage(workers=100).settle()
    before = len(stage.writes)
    for index in range(100):
        stage.now += timedelta(milliseconds=100)
        stage.call_in(f"worker-{index}")
    assert stage.status.phase == Phase.STARTING
    assert len(stage.writes) - before <= 4


@pytest.mark.parametrize("seconds", [10, 60, 225, 350])
@pytest.mark.parametrize("workers", [3, 30, 100])
def test_a_slow_start_costs_five_writes_however_long_it_takes(workers: int, seconds: int) -> None:
    """Pending, a third and two thirds of the replicas are ready, Starting, Running."""
    stage = a_stage(workers=workers).settle()
    for index in range(workers):
        stage.wait(seconds / workers).call_in(f"worker-{index}")
    stage.obey()
    assert (stage.status.phase, stage.status.replicas and stage.status.replicas.ready) == (Phase.RUNNING, workers)
    assert len(stage.writes) <= 5, [(one.phase, one.replicas) for one in stage.writes]


def test_a_start_that_stands_still_is_told_in_two_minutes_without_other_news() -> None:
    stage = a_stage(workers=100).settle().wait(50)
    stage.call_in(*(f"worker-{index}" for index in range(20)))
    assert (stage.status.replicas and stage.status.replicas.ready, len(stage.writes)) == (0, 1)
    assert stage.wake_at == NOON + timedelta(seconds=120)
    stage.wait(70)
    assert stage.status.message == "Waiting for worker-20, worker-21, worker-22, worker-23 and 76 more."
    assert stage.status.replicas
    assert stage.status.replicas.ready == 20
    assert len(stage.wait(3600).writes) == 2


def test_pods_that_come_on_one_by_one_change_no_condition() -> None:
    """The first of them waits for its image, then for its init container, and the next one for its image again."""
    stage = a_stage(workers=30).settle().wait(61)
    for index in range(30):
        for reason in ("ContainerCreating", "PodInitializing"):
            since = (stage.now - timedelta(seconds=61)).timestamp()
            stage.change(f"worker-{index}", lambda one, why=reason, at=since: pending(one, why, since=at))  # type: ignore[misc]
    before = len(stage.writes)
    for index in range(30):
        stage.wait(1).change(f"worker-{index}", lambda one: pending(one, "ContainerCreating", since=NOON.timestamp()))
        stage.wait(1).change(f"worker-{index}", lambda one: pending(one, "PodInitializing", since=NOON.timestamp()))
    assert len(stage.writes) - before <= 1


def test_what_waits_without_news_is_not_looked_at_again() -> None:
    assert a_stage(workers=2).settle().wait(6).wait(6).wake_at is None
    assert a_running_group(workers=2).respec(suspend=True).wait(6).wait(6).wake_at is None


def test_what_matters_is_written_at_once_and_takes_the_rest_along() -> None:
    stage = a_running_group(workers=2)
    stage.now += timedelta(seconds=1)
    at_step(stage, 7)
    assert stage.finish().status.phase == Phase.SUCCEEDED
    assert stage.status.progress
    assert stage.status.progress.step == 7


def test_after_the_end_nothing_is_reported_any_more() -> None:
    stage = a_running_group(workers=1).finish()
    end = stage.status
    at_step(stage, 999)
    assert stage.wait(20).status == end


# Checkpoints.


def test_the_newest_checkpoint_that_anybody_told_of() -> None:
    stage = a_running_group(workers=2)
    for key, step in (("worker-0", 50), ("worker-1", 100), ("worker-0", 50)):
        record = CheckpointRecord(step, NOON.timestamp(), f"sha-{step}")
        stage.say(key, lambda beat, record=record: dataclasses.replace(beat, checkpoint=record))  # type: ignore[misc]
        stage.wait(5)
    checkpoint = stage.status.checkpoint
    assert checkpoint
    assert (checkpoint.step, checkpoint.time, checkpoint.sha256) == (100, NOON, "sha-100")


def test_a_checkpoint_outlives_the_agent_that_told_of_it() -> None:
    stage = a_running_group(workers=1)
    record = CheckpointRecord(50, NOON.timestamp(), "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record)).wait(10).vanish("worker-0")
    assert stage.status.checkpoint
    why = stage.status.restarts[-1].why
    assert why == "Restarting from step 50. It costs no restart budget.", "its memory went with it"


def test_the_last_word_of_a_worker_that_is_lost_right_after_it_names_the_last_checkpoint() -> None:
    """The worker that commits had finished, so nobody makes it again."""
    stage = a_running_group(workers=2)
    record = CheckpointRecord(100, NOON.timestamp(), "abc")
    last_word = dataclasses.replace(finished(stage.replica("worker-0").heartbeat or a_heartbeat()), checkpoint=record)
    stage.change("worker-0", lambda one: evicted(saying(one, last_word))).finish("worker-1")
    assert stage.status.phase == "Succeeded"
    assert stage.status.checkpoint
    assert stage.status.checkpoint.step == 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (90061, "25h01m"),
        (-5, "0s"),
        (float("nan"), ""),
        (float("inf"), ""),
    ],
)
def test_a_length_of_time_in_two_units(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("59s", 59),
        ("3m05s", 185),
        ("1h20m", 4800),
        *((text, None) for text in (None, "", "soon", "-5s", "5")),
    ],
)
def test_a_length_of_time_is_read_as_it_was_written(text: str | None, seconds: float | None) -> None:
    assert figures.length(text) == seconds


def test_steps_that_were_lowered_below_the_newest_checkpoint_leave_nothing_to_train() -> None:
    stage = a_running_group(workers=2, training={"task": "a:B", "steps": 5, "globalBatchSize": 8})
    at_step(stage, 20, resumed_step=20, phase="evaluate")
    stage.wait(20).finish()
    assert (stage.status.phase, stage.status.reason) == (Phase.SUCCEEDED, "AllWorkersFinished")
    assert (stage.status.message or "").startswith(
        "The newest checkpoint is of step 20, beyond spec.training.steps (5)"
    )
    assert stage.status.progress
    assert stage.status.progress.summary == "20/5"


def test_a_job_that_is_begun_again_at_its_last_step_is_simply_through() -> None:
    stage = a_running_group(workers=2, training={"task": "a:B", "steps": 20, "globalBatchSize": 8})
    at_step(stage, 20, resumed_step=20, phase="evaluate")
    assert stage.finish().status.message == "All 2 workers finished."


def test_a_spec_that_was_corrected_is_not_complained_of_any_more() -> None:
    stage = a_running_group(2)
    told = Condition(
        type="InvalidSpec",
        status="True",
        reason="UnknownOrWrongFields",
        message="It cannot be followed.",
        last_transition_time=stage.now,
    )
    status = dataclasses.replace(stage.status, conditions=(*stage.status.conditions, told), message=told.message)
    stage.job = stage.job.model_copy(update={"status": status})
    stage.settle()
    assert stage.condition("InvalidSpec") is None
    assert stage.status.message == "The spec was corrected; the job goes on."
