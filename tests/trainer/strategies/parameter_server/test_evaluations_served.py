"""Evaluations under ParameterServer: the model of a step, whoever is lost meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from trainmaster.wire.progress_page import ProgressFile
from trainmaster.wire.training import Aim

from tests.trainer.crew import Crew, NewCrew
from tests.trainer.ranks import NewJob, Options
from tests.trainer.test_evaluations import evaluations, metrics, saved

SYNC: Options = {"strategy_options": {"update": "Sync"}}
MEASURED: Options = {"task": "measured_tasks:Measured", "evaluate_every": 3, "steps": 12, "checkpoint_every": 4}


def test_the_model_of_a_step_is_evaluated_as_on_one_device(new_job: NewJob, new_crew: NewCrew) -> None:
    one = new_job("one", strategy="OneDevice", **MEASURED).run(1)
    for workers, servers in ((2, 1), (2, 2)):
        job = new_crew(workers, servers, f"{workers}-{servers}", **SYNC, **MEASURED).start().finish()
        assert [*evaluations(job)] == [3, 6, 9, 12]
        for step, figures in evaluations(job).items():
            assert figures == pytest.approx(evaluations(one)[step], rel=1e-4), step
        assert job.losses() == pytest.approx(one.losses(), rel=1e-5)
        for ours, theirs in zip(metrics(job), metrics(one), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4)
        assert job.result()["metrics"] == evaluations(job)[12]


def test_asynchronous_workers_wait_for_the_evaluation_too(new_crew: NewCrew) -> None:
    job = new_crew(3, 2, **MEASURED).start().finish()
    assert [*evaluations(job)] == [3, 6, 9, 12]
    assert len(job.losses()) == 12


def falling(new_crew: NewCrew, name: str, **changes: Any) -> Crew:
    """Its mean error falls from the beginning, so no evaluation of the worst is better than the first."""
    aims = {"checkpoint_best": Aim("validation_loss", "max"), "stop_early": Aim("validation_loss", "max", 3)}
    plan = {**MEASURED, **SYNC, **aims, "steps": 30, "checkpoint_keep": 1, "checkpoint_every": 50}
    return new_crew(2, 2, name, **{**plan, **changes})


def test_the_best_is_kept_and_training_stops_early(new_crew: NewCrew) -> None:
    crew = falling(new_crew, "falling").start()
    job = crew.finish()
    assert [*evaluations(job)] == [3, 6, 9, 12]
    assert saved(job) == [3, 12]
    assert len(job.losses()) == 12
    told = ProgressFile(str(job.folder / "page-1-2")).read_figures()
    assert told
    assert told.evaluation
    assert told.evaluation.stopped.startswith("Training stopped early after step 12: validation_loss")


@pytest.mark.parametrize("victim", [0, 2, 3], ids=["the worker that evaluates", "server 0", "the other server"])
def test_whoever_dies_the_evaluations_are_those_of_a_calm_run(new_crew: NewCrew, victim: int) -> None:
    calm = falling(new_crew, "calm").start().finish()
    crew = falling(new_crew, "killed", arguments={"seconds": 0.02}).start()
    crew.reach(7)
    crew.kill(victim)
    crew.again(victim)
    job = crew.finish()
    assert evaluations(job) == evaluations(calm)
    assert saved(job) == [3, 12]


def test_the_worker_that_writes_evaluates_its_model_on_the_way(new_crew: NewCrew) -> None:
    """Also after its death, and each step is evaluated once at most."""
    plan: Options = {"evaluate_every": 10, "steps": 60, "checkpoint_every": 20, "arguments": {"seconds": 0.03}}
    crew = new_crew(2, strategy="Gossip", **{**MEASURED, **plan}).start()
    crew.reach(15)
    crew.kill(0)
    crew.again(0)
    crew.finish()
    evaluated = [line["step"] for line in crew.job.lines() if "evaluation" in line]
    assert evaluated == sorted({*evaluated})
    assert len(evaluated) >= 3, "workers count steps together, and may pass one between looks"
    assert evaluated[-1] == 60
    assert {"validation_loss", "error"} <= crew.job.lines()[-1]["evaluation"].keys()
