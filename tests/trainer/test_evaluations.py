"""Metrics of steps, evaluations on the way, the best checkpoint and the early stop, by real ranks."""

import math
import os
import random
import re
import signal
from dataclasses import replace
from typing import Any

import pytest
import torch
from trainmaster.wire import names
from trainmaster.wire.training import Aim, TrainingPlan
from trainmaster_trainer.batch_losses import Losses
from trainmaster_trainer.evaluations import Evaluations, Judge
from trainmaster_trainer.metric_names import MetricNames

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import Job, NewJob, Options, alone

FIGURES = ("validation_loss", "error", "first", "drawn", "training")


def evaluations(job: Job) -> dict[int, dict[str, float]]:
    """The figures by step; there must be one line for each."""
    lines = [line for line in job.lines() if "evaluation" in line]
    assert len({line["step"] for line in lines}) == len(lines)
    return {line["step"]: line["evaluation"] for line in lines}


def measured(new_job: NewJob, name: str, **changes: Any) -> Job:
    return new_job(name, **{"task": "measured_tasks:Measured", "evaluate_every": 2, "steps": 6, **changes})


def test_metrics_and_evaluations_are_those_of_one_rank_however_the_samples_divide(new_job: NewJob) -> None:
    alone = measured(new_job, "alone", strategy="OneDevice").run(1)
    three = measured(new_job, "three").run(3)
    assert [*evaluations(alone)] == [*evaluations(three)] == [2, 4, 6]
    for step, figures in evaluations(three).items():
        assert {*figures} == {*FIGURES}
        assert figures["training"] == 0.0
        for name in ("validation_loss", "error", "first"):
            assert figures[name] == pytest.approx(evaluations(alone)[step][name], rel=1e-5)
    for ours, theirs in zip(metrics(three), metrics(alone), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert three.result() == {"step": 6, "metrics": evaluations(three)[6]}


def metrics(job: Job) -> list[dict[str, float]]:
    return [line["metrics"] for line in job.lines() if "loss" in line]


def test_evaluations_leave_the_training_as_it_is(new_job: NewJob) -> None:
    """Even one that runs the model in training mode."""
    task = "measured_tasks:MeasuredWithRunningMeans"
    without = new_job("without", task=task).run(2)
    often = measured(new_job, "often", task=task, evaluate_every=1).run(2)
    assert often.losses() == without.losses()
    assert often.manifest(6)["model_sha256"] == without.manifest(6)["model_sha256"]


SCORES = {"2": 0.1, "4": 0.5, "6": 0.3, "8": 0.4, "10": 0.9, "12": 0.2, "14": 0.8, "16": 0.1, "18": 0.2, "20": 1.0}
SCRIPTED: Options = {
    "task": "measured_tasks:Scripted",
    "arguments": {"scores": SCORES, "dropout": 0.2},
    "steps": 24,
    "evaluate_every": 2,
    "checkpoint_every": 5,
    "checkpoint_keep": 1,
    "checkpoint_best": Aim("score", "max"),
}


def saved(job: Job, pod: int = 0) -> list[int]:
    return sorted(int(path.name[5:]) for path in job.checkpoints(pod).glob("step-*"))


def test_the_best_checkpoint_is_kept_beside_the_newest(new_job: NewJob) -> None:
    job = new_job(**{**SCRIPTED, "steps": 17}).run(2)
    assert saved(job) == [10, 17]
    assert job.manifest(17)["scalars"]["evaluations"]["best"]["steps"] == [2, 4, 10]
    least = new_job("least", **{**SCRIPTED, "steps": 17, "checkpoint_best": Aim("score", "min")}).run(1)
    assert saved(least) == [17], "0.0 after the last step is the smallest"


def test_training_stops_early_and_stays_stopped(new_job: NewJob) -> None:
    job = new_job(**SCRIPTED, stop_early=Aim("score", "max", 4)).run(2)
    assert len(job.losses()) == 18
    assert [*evaluations(job)] == [*range(2, 19, 2)]
    assert saved(job) == [10, 18]
    assert job.result()["metrics"] == evaluations(job)[18]
    running = job.start(2, attempt=2)
    assert running.wait() == [0, 0], running.output()
    assert len(job.losses()) == 18
    assert [*evaluations(job)] == [*range(2, 19, 2)]
    told = running.pages[0].read_figures()
    assert told
    assert told.evaluation
    assert (told.evaluation.step, told.evaluation.best_step) == (18, 10)
    assert told.evaluation.stopped == (
        "Training stopped early after step 18: score has not become better for 4 evaluations "
        "(spec.training.stopEarly); it was best, 0.9 after step 10."
    )


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_killed_at_random_steps_it_evaluates_keeps_and_stops_as_a_calm_one(
    new_job: NewJob, memory: bool, shared: bool
) -> None:
    plan = {**SCRIPTED, "stop_early": Aim("score", "max", 4), "checkpoint_shared": shared}
    calm = new_job("calm", **plan).run(2)
    job = replace(new_job("killed", **{**plan, "memory_every": 1}), memory=memory)
    chance = random.Random(f"{memory} {shared}")  # noqa: S311 (no secret)
    for attempt in range(1, 9):
        running = job.start(2, attempt)
        running.reach(min(17, 2 * attempt + chance.randrange(2)))
        os.kill(running.pids[chance.randrange(2)], signal.SIGKILL)
        running.kill()
    job.run(2, attempt=9)
    for pod in range(1 if shared else 2):
        assert saved(job, pod) == saved(calm) == [10, 18]
        for step in (10, 18):
            assert job.manifest(step, pod)["model_sha256"] == calm.manifest(step, pod)["model_sha256"]
    if shared:
        assert evaluations(job) == evaluations(calm)
        assert job.losses() == calm.losses()
        assert job.result() == calm.result()


def test_metrics_that_no_file_has_yet_outlive_their_process(new_job: NewJob) -> None:
    calm = new_job("calm", task="measured_tasks:Measured", steps=40).run(2)
    job = replace(new_job("killed", task="measured_tasks:Measured", steps=40, memory_every=1), memory=True)
    for attempt in range(1, 5):
        running = job.start(2, attempt)
        running.reach(8 * attempt)
        running.kill()
    job.run(2, attempt=5)
    assert metrics(job) == metrics(calm)


WRONG = {
    "loss": "metrics() of Wrong gave a metric called 'loss'. Choose a name",
    "text": "metrics() of Wrong gave 'low' as 'error'. Give one number",
    "many": "gave a tensor of shape [10, 1] as 'error'. Give one number",
    "list": "metrics() of Wrong gave list. Return a dict of numbers by name",
    "missing on one rank": "metrics() gave error on rank 0 and nothing on rank 1",
    "missing later": "metrics() gave mistake, and error for a batch before. Give the same names for every batch",
    "changes a parameter": "the evaluation changes the parameter 0.weight of the model, which goes on to be trained",
    "twice": "evaluate() of Wrong gives error, as do the validation samples",
    "raises": "KeyError: 'no such figure'",
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_in_a_measure_is_told_with_its_cure(new_job: NewJob, what: str) -> None:
    job = measured(new_job, what.replace(" ", "-"), task="measured_tasks:Wrong", arguments={"what": what})
    running = job.start(2)
    first = 1 if what in ("missing later", "many", "list", "loss", "text", "missing on one rank") else 0
    assert running.wait_for(first) not in (0, None)
    running.kill()
    assert WRONG[what] in running.output()


def test_a_figure_that_nobody_reports_ends_the_job_at_the_first_evaluation(new_job: NewJob) -> None:
    best = measured(new_job, "best", checkpoint_best=Aim("accuracy", "max")).start(2)
    assert 0 not in best.wait()
    assert re.search(
        r"spec.checkpoint.best.metric: the evaluation has no figure 'accuracy'; it has \['drawn', 'error'",
        best.output(),
    )
    stop = measured(new_job, "stop", stop_early=Aim("eror", "min", 2)).start(1)
    assert 0 not in stop.wait()
    assert "spec.training.stopEarly.metric: the evaluation has no figure 'eror'" in stop.output()
    assert "Did you mean 'error'?" in stop.output()


@pytest.mark.parametrize(
    ("values", "best", "waited"),
    [
        ([0.5, 0.5, 0.5], 1, 2),
        ([math.nan, math.nan], None, 2),
        ([math.nan, 0.5, math.nan, 0.6], 4, 0),
        ([0.5, math.inf], 1, 1),
        ([-math.inf, -1e308, 1e308], 3, 0),
        ([0.0, -0.0], 1, 1),
    ],
)
def test_the_best_is_the_first_of_equals_and_never_one_that_is_no_number(
    values: list[float], best: int | None, waited: int
) -> None:
    judge = Judge(Aim("score", "max", 9))
    for step, value in enumerate(values, 1):
        judge.look("spec.checkpoint.best", step, {"score": value})
    assert (judge.steps[-1] if judge.steps else None, judge.waited) == (best, waited)


def test_a_figure_that_two_look_at_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """By both checkpoint.best and training.stopEarly."""
    aim = Aim("score", "max", 9)
    evaluations = Evaluations(TrainingPlan("AllReduce", checkpoint_best=aim, stop_early=aim))
    evaluations.take(3, {"score": math.nan, "other": math.inf})
    assert [record.getMessage() for record in caplog.records] == [
        "score of the evaluation after step 3 is nan, which is never better."
    ]


def test_a_task_that_has_nothing_to_evaluate_is_refused_before_the_first_step(new_job: NewJob) -> None:
    for task, said in (
        ("Silent", "spec.training.evaluateEverySteps: Silent has nothing to evaluate"),
        ("Emptied", "spec.training.task: its validation_dataset() is empty"),
    ):
        running = new_job(task, task=f"measured_tasks:{task}", evaluate_every=2).start(1)
        assert 0 not in running.wait()
        assert said in running.output()
        assert running.pages[0].read().step == 0


def test_so_is_one_with_no_sample_that_is_tried_after_the_last_step_alone(new_job: NewJob, new_crew: NewCrew) -> None:
    said = "its validation_dataset() is empty. Let it give at least one sample, or None."
    running = new_job("together", task="measured_tasks:Emptied").start(1)
    assert running.wait() == [names.EXIT_BAD_CONFIGURATION]
    assert said in running.output()
    assert running.pages[0].read().step == 0
    for workers, servers in ((1, 1), (2, 0)):  # ParameterServer, Gossip
        crew = new_crew(workers, servers, f"apart-{servers}", task="measured_tasks:Emptied").start()
        assert crew.wait(0) == names.EXIT_BAD_CONFIGURATION
        assert said in crew.output_file(0).read_text()
        assert crew.page(0).step == 0 or not servers, "another worker may have begun before"


def test_a_metric_that_is_no_number_is_null_and_costs_no_snapshot(new_job: NewJob) -> None:
    job = new_job(task="measured_tasks:Wrong", arguments={"what": "nan"}).run(1)
    assert [line["metrics"]["error"] for line in job.lines() if "loss" in line] == [0.5, 0.5, None, 0.5, 0.5, 0.5]


def test_a_kill_in_the_evaluation_leaves_one_line_of_it(new_job: NewJob, tmp_path: Any) -> None:
    plan = {"task": "measured_tasks:Killer", "evaluate_every": 3}
    job = new_job(**plan, arguments={"marker": str(tmp_path / "killed")})
    running = job.start(1)
    assert running.wait() == [-signal.SIGKILL]
    job.run(1, attempt=2)
    calm = new_job("calm", **plan, arguments={"marker": str(tmp_path / "killed")}).run(1)
    assert evaluations(job) == evaluations(calm)


def test_what_a_rank_without_losses_goes_on_with_says_nothing_of_names() -> None:
    """As the first stages of a pipeline, whose snapshot of the first step was taken before ranks had told the names."""
    losses = Losses(alone(), MetricNames())
    losses.restore([], range(1, 2))
    assert [dict(one.metrics) for one in losses.flush(stop_asked=False).losses] == [{}]
    losses.add(2, torch.tensor(0.5), 4, 0.1, metrics={"error": torch.tensor(0.25)})
    assert [dict(one.metrics) for one in losses.flush(stop_asked=False).losses] == [{"error": 0.25}]
