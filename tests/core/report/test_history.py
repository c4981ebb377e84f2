"""The curve in the status: few points, spread over all of the training, and a condition for either end."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.api.status import MAX_EVALUATIONS, MAX_HISTORY, EvaluationStatus, JobProgress, TrainingJobStatus
from trainmaster.core.report import history

from tests.builders import a_death
from tests.core.stage import a_running_group


def curve(*steps: int) -> TrainingJobStatus:
    status = TrainingJobStatus()
    for step in steps:
        made = history.extended_history(status, JobProgress(step=step, loss=1 / (step + 1), samples_per_second=1000.0))
        status = TrainingJobStatus(history=made)
    return status


@pytest.mark.parametrize("every", [1, 7, 100])
def test_a_long_training_has_at_most_128_points_spread_over_all_of_it(every: int) -> None:
    points = curve(*range(every, 10_000 * every, every)).history
    assert MAX_HISTORY // 2 <= len(points) <= MAX_HISTORY
    gaps = [after.step - before.step for before, after in itertools.pairwise(points)]
    assert max(gaps) <= 4 * min(gaps)
    assert points[0].step <= 2 * max(gaps)
    assert points[-1].step >= 9_999 * every - max(gaps)


@given(st.lists(st.integers(0, 10_000), max_size=400))
def test_steps_rise_and_are_few_whatever_comes(steps: list[int]) -> None:
    points = [point.step for point in curve(*steps).history]
    assert points == sorted(set(points))
    assert len(points) <= MAX_HISTORY


def test_steps_that_are_trained_again_replace_their_points() -> None:
    assert [point.step for point in curve(10, 20, 30, 15, 25).history] == [10, 15, 25]


def test_the_end_is_a_point_and_all_of_it_is_a_few_kilobytes() -> None:
    status = curve(*range(100_000, 300_000, 100))
    ended = TrainingJobStatus(phase="Succeeded", history=status.history)  # type: ignore[arg-type]
    points = history.extended_history(
        ended, JobProgress(step=status.history[-1].step + 1, loss=0.01234, samples_per_second=12345.6)
    )
    assert points[-1].step == status.history[-1].step + 1
    told = TrainingJobStatus(history=(points * 2)[-MAX_HISTORY:]).to_dict()["history"]
    assert len(json.dumps(told, separators=(",", ":"))) < 8 << 10


def evaluated(*steps: int) -> TrainingJobStatus:
    status = TrainingJobStatus()
    for step in steps:
        figures = {"accuracy": step / 10_000, "b": 1.0, "c": 2.0, "d": 3.0, "x" * 100: 4.0}
        progress = JobProgress(step=step + 1, evaluation=EvaluationStatus(step=step, figures=figures))
        for _ in range(2):  # it stands in the progress until there is another one
            status = TrainingJobStatus(evaluations=history.evaluations(status, progress))
    return status


def test_evaluations_are_kept_few_and_spread_over_all_of_the_training() -> None:
    points = evaluated(*range(100, 10_000, 100)).evaluations
    assert MAX_EVALUATIONS // 2 <= len(points) <= MAX_EVALUATIONS
    assert points[-1].step == 9_900
    assert points[0].step <= 800
    assert points[-1].figures == {"accuracy": 0.99, "b": 1.0, "c": 2.0}
    told = TrainingJobStatus(evaluations=points).to_dict()["evaluations"]
    assert len(json.dumps(told, separators=(",", ":"))) < 4 << 10


def test_the_best_evaluation_stays_however_many_come_after_it() -> None:
    status = TrainingJobStatus()
    for step in range(1, 400):
        new = EvaluationStatus(
            step=step, figures={"accuracy": 1.0 if step == 7 else 0.5}, best_step=7 if step > 6 else 1
        )
        status = TrainingJobStatus(evaluations=history.evaluations(status, JobProgress(step=step, evaluation=new)))
    assert 7 in [point.step for point in status.evaluations]
    assert len(status.evaluations) <= 32


def test_evaluations_of_steps_that_are_trained_again_are_replaced() -> None:
    assert [point.step for point in evaluated(100, 200, 300, 150).evaluations] == [100, 150]
    gone_back = history.evaluations(evaluated(100, 200, 300), JobProgress(step=180))
    assert [point.step for point in gone_back] == [100]
    assert history.evaluations(evaluated(100), JobProgress()) == evaluated(100).evaluations


def test_a_job_keeps_its_evaluations_and_its_workers_are_done_at_the_end() -> None:
    stage = a_running_group(2)
    assert stage.status.replicas is not None
    stage.train(100).finish()
    assert stage.status.replicas is not None
    assert (stage.status.replicas.summary, stage.status.replicas.ready) == ("2/2", 0)
    failed = a_running_group(1, failurePolicy={"maxRestarts": 0}).rank_dies("worker-0", a_death()).status.replicas
    assert failed is not None
    assert failed.summary == "0/1"


def test_a_job_writes_its_curve_with_its_progress_and_nothing_besides() -> None:
    stage = a_running_group(2)
    before = len(stage.writes)
    for step in (100, 200, 300):
        stage.train(step).wait(10)
    assert [point.step for point in stage.status.history][-3:] == [100, 200, 300]
    assert len(stage.writes) - before <= 4, "as often as progress is written"


def test_either_end_is_a_condition() -> None:
    assert a_running_group(2).told("Finished") == ("", "")
    assert a_running_group(2).finish().told("Finished") == ("True", "AllWorkersFinished")
    stage = a_running_group(1, failurePolicy={"maxRestarts": 0}).rank_dies("worker-0", a_death())
    assert (stage.status.phase, stage.told("Finished")[0]) == ("Failed", "True")
