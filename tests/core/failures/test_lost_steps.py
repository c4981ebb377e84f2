"""What a restart costs a script is known when it tells its next step; what it never tells is left blank."""

from __future__ import annotations

import dataclasses

from trainmaster.api.job_states import Phase
from trainmaster.api.status import Goodput, RestartRecord
from trainmaster.core.failures.lost_steps import shared
from trainmaster.core.report.story import story
from trainmaster.wire import messages

from tests.builders import NOON, a_death
from tests.core.stage import Stage, a_running_group, a_stage

SCRIPT = {"command": ["python", "train.py"]}


def a_script() -> Stage:
    return again(a_stage(workers=2, training=SCRIPT).settle().call_in())


def again(stage: Stage) -> Stage:
    """The ranks run and have told no step yet."""
    return telling(stage.obey(step=0, phase="load"))


def told(stage: Stage, step: int, **more: object) -> Stage:
    """All ranks tell this step."""
    return telling(stage, step=step, resumed_step=0, **more)


def telling(stage: Stage, **members: object) -> Stage:
    for key in ("worker-0", "worker-1"):
        stage.say(key, lambda beat: dataclasses.replace(beat, ranks=_ranks(beat, members)))
    return stage


def _ranks(beat: messages.Heartbeat, members: dict[str, object]) -> tuple[messages.RankProgress, ...]:
    told = messages.RankProgress(beat.index, 0, step_seconds=0.5, loss=1.0)
    return (dataclasses.replace(told, **members),) if members else ()  # type: ignore[arg-type]


def line(stage: Stage) -> RestartRecord:
    return stage.status.restarts[-1]


def spent(stage: Stage) -> Goodput:
    assert stage.status.goodput
    return stage.status.goodput


def test_the_first_step_after_a_restart_tells_what_was_lost_in_steps_and_time() -> None:
    stage = told(a_script(), 120).wait(120)
    stage.rank_dies("worker-1", a_death(step=120)).wait(2)
    again(stage).wait(8)
    assert stage.status.phase == Phase.RUNNING, "its processes are there"
    assert (line(stage).steps_lost, line(stage).seconds_lost) == (None, None)
    assert "goes on from what it has saved" in line(stage).why
    telling(stage, step=101, resumed_step=100)
    assert (line(stage).steps_lost, line(stage).seconds_lost) == (20, 10)
    assert line(stage).why.endswith("It went on from step 100.")
    assert (spent(stage).training, spent(stage).lost_work, spent(stage).recovering) == (100, 20, 10)
    stage.wait(50).finish()
    assert (spent(stage).training, spent(stage).lost_work, spent(stage).recovering) == (150, 20, 10)


def test_steps_that_only_the_failure_told_are_lost_work_too() -> None:
    """The status was written long before, and another try ended before it told a step."""
    stage = told(a_script(), 1).wait(120)
    stage.rank_dies("worker-1", a_death(step=120)).wait(2)
    again(stage).rank_dies("worker-1", a_death(attempt=2, step=0)).wait(3)
    telling(again(stage).wait(5), step=101, resumed_step=100)
    assert [one.steps_lost for one in stage.status.restarts] == [20, None]
    assert (spent(stage).training, spent(stage).lost_work, spent(stage).recovering) == (100, 20, 10)


def test_a_rank_that_was_asked_to_end_has_taken_steps_after_the_last_one_that_it_told() -> None:
    stage = told(a_script(), 120).wait(120)
    stage.rank_dies("worker-1", a_death(step=120)).wait(2)
    telling(again(stage), step=131, resumed_step=130)
    assert (line(stage).step, line(stage).steps_lost) == (130, 0)


def test_of_a_replica_that_had_told_less_than_it_kept_the_line_has_the_step_that_was_kept() -> None:
    """Its survivor told step 17 before it was lost, beside a newer checkpoint: none was lost, by that."""
    (found,) = shared((RestartRecord(attempt=1, time=NOON, step=17, steps_lost=0),), [0], 24)
    assert (found.step, found.steps_lost) == (24, 0)


def test_a_failure_before_the_script_tells_a_step_is_part_of_the_same_cost() -> None:
    stage = told(a_script(), 120).wait(60)
    stage.rank_dies("worker-1", a_death(step=120)).wait(2)
    again(stage).rank_dies("worker-1", a_death(attempt=2, step=0)).wait(60)
    telling(again(stage).wait(5), step=101, resumed_step=100)
    assert [one.steps_lost for one in stage.status.restarts] == [20, None], "the second had trained nothing"
    assert all(one.seconds_lost is not None for one in stage.status.restarts)


def test_where_it_went_on_may_stay_unknown() -> None:
    """Optimizer steps are counted from the restart, and the optimizer keeps no count of its own."""
    stage = told(a_script(), 120).wait(60)
    stage.rank_dies("worker-1", a_death(step=120)).wait(2)
    telling(again(stage).wait(3), step=1, resumed_step=None, total_steps=200)
    assert (line(stage).steps_lost, line(stage).seconds_lost) == (None, 5)
    assert spent(stage).lost_work == 0
    progress = stage.wait(20).status.progress
    assert progress
    assert (progress.step, progress.total_steps, progress.eta) == (1, 200, None), "no guess of what is left"
    assert "steps trained again were not told" in "\n".join(story(stage.status))


def test_what_steps_after_those_of_another_program_cost_is_left_blank() -> None:
    """`python pretrain.py && python finetune.py`: after the restart the first has nothing left to do."""
    stage = told(a_script(), 150, earlier_steps=100).wait(150)
    stage.rank_dies("worker-1", a_death(step=150)).wait(2)
    telling(again(stage).wait(8), step=41, resumed_step=40)
    assert (line(stage).step, line(stage).earlier_steps) == (150, 100)
    assert (line(stage).steps_lost, line(stage).seconds_lost, spent(stage).lost_work) == (None, 10, 0)
    telling(stage.wait(50), step=50, resumed_step=40).rank_dies("worker-1", a_death(attempt=2, step=50)).wait(2)
    telling(again(stage), step=46, resumed_step=45)
    assert [one.steps_lost for one in stage.status.restarts] == [None, 5], "its own steps can be compared"
    assert (spent(stage).lost_work, spent(stage).training) == (25, 175)


def test_a_failure_that_is_over_says_nothing_of_a_later_start() -> None:
    """What is trained after a pause is compared with what was trained before it."""
    stage = told(a_script(), 150, earlier_steps=100).wait(150)
    stage.rank_dies("worker-1", a_death(step=150)).wait(2)
    telling(telling(again(stage).wait(8), step=41, resumed_step=40).wait(100), step=500, resumed_step=40)
    stage.respec(suspend=True).settle().respec(suspend=False).settle().call_in()
    assert spent(again(stage)).try_from == 500


def test_a_failure_of_the_first_phase_is_none_of_the_phase_before_a_pause() -> None:
    stage = told(a_script(), 150, earlier_steps=100).wait(150).respec(suspend=True).settle()
    again(stage.respec(suspend=False).settle().call_in())
    telling(stage, step=5, resumed_step=0).rank_dies("worker-1", a_death(attempt=stage.status.attempt, step=5))
    assert (line(stage).step, line(stage).earlier_steps) == (5, None)


def test_a_pod_that_was_lost_cannot_say_it_and_the_status_does() -> None:
    stage = told(a_script().wait(10), 150, earlier_steps=100).wait(10)
    for key in ("worker-0", "worker-1"):
        stage.vanish(key)
    telling(again(stage.settle().call_in()), step=41, resumed_step=40)
    assert {(one.steps_lost, one.earlier_steps) for one in stage.status.restarts} == {(None, 100)}


def test_a_script_that_never_told_a_step_is_back_when_its_processes_are() -> None:
    stage = a_script().wait(60)
    stage.rank_dies("worker-1", a_death(step=0)).wait(2)
    again(stage)
    assert (line(stage).steps_lost, line(stage).seconds_lost) == (None, 2)


def test_one_that_ends_well_without_another_step_leaves_no_line_open() -> None:
    stage = told(a_script(), 120).wait(60)
    stage.rank_dies("worker-1", a_death(step=120)).wait(2)
    again(stage).wait(3).finish()
    assert stage.status.phase == Phase.SUCCEEDED
    assert (line(stage).steps_lost, line(stage).seconds_lost) == (None, 5)


def test_the_spec_s_number_of_steps_goes_before_the_script_s() -> None:
    stage = a_script().wait(10)
    telling(stage, step=50, total_steps=400, resumed_step=0).wait(10)
    assert stage.status.progress
    assert stage.status.progress.summary == "50/400"
    assert stage.status.progress.eta == "2m55s"
    stage = a_running_group(workers=2, training={**SCRIPT, "steps": 100}).wait(10)
    telling(stage, step=50, total_steps=400, resumed_step=0).wait(10)
    assert stage.status.progress
    assert stage.status.progress.summary == "50/100"
