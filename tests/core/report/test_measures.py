"""What people see of a task's metrics and evaluations, and how a job ends that stops early."""

from __future__ import annotations

import dataclasses
import json
import math

from trainmaster.api.job_states import Phase
from trainmaster.wire.messages import Evaluation, Figures, RankProgress

from tests.core.report.test_report import at_step
from tests.core.stage import Stage, a_running_group, a_stage

EARLY = {"metric": "validation_loss", "patience": 3, "mode": "min"}
TRAINING = {"task": "a:B", "steps": 1000, "globalBatchSize": 8, "evaluateEverySteps": 20, "stopEarly": EARLY}
SENTENCE = "Training stopped early after step 60: validation_loss has not become better for 3 evaluations."


def measured(stage: Stage, step: int, figures: Figures) -> Stage:
    """The first rank has measured this; the others say nothing of it."""
    at_step(stage, step)
    first = RankProgress(0, step, loss=0.5, figures=figures)
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, ranks=(first,)))
    return stage.wait(10)


def test_figures_are_those_of_the_rank_that_writes_them() -> None:
    evaluation = Evaluation(40, {"validation_loss": 0.123456, "accuracy": 0.5, "odd": None}, best_step=20)
    stage = measured(a_running_group(workers=2), 45, Figures({"error": 0.25, "none": None}, evaluation))
    progress = stage.status.to_dict()["progress"]
    assert progress["metrics"] == {"error": 0.25}
    assert progress["evaluation"] == {
        "step": 40,
        "figures": {"validation_loss": 0.1235, "accuracy": 0.5},
        "bestStep": 20,
        "summary": "accuracy 0.5, validation_loss 0.1235",
    }


def test_figures_stay_while_ranks_load_and_an_edited_status_is_read() -> None:
    stage = measured(a_running_group(workers=1), 45, Figures({"error": 0.25}, Evaluation(40, {"accuracy": 0.5})))
    at_step(stage, 1, phase="load")
    stage.wait(30)
    assert stage.status.progress
    assert stage.status.progress.metrics == {"error": 0.25}
    plain = stage.status.to_dict()
    plain["progress"]["evaluation"]["figures"] = {"accuracy": "high"}
    assert type(stage.status).read(json.loads(json.dumps(plain))).progress is not None


def test_a_job_that_stops_early_has_succeeded_for_that_reason() -> None:
    stage = a_running_group(workers=2, training=TRAINING)
    evaluation = Evaluation(60, {"validation_loss": 0.5}, stopped=SENTENCE)
    measured(stage, 60, Figures(evaluation=evaluation)).finish()
    assert (stage.status.phase, stage.status.reason) == (Phase.SUCCEEDED, "EarlyStopped")
    assert stage.status.message == SENTENCE
    assert [(event.type, event.reason) for event in stage.events][-1] == ("Normal", "EarlyStopped")


def test_one_whose_first_worker_is_gone_already_too() -> None:
    stage = a_running_group(workers=2, training=TRAINING)
    measured(stage, 60, Figures(evaluation=Evaluation(60, {}, stopped=SENTENCE)))
    stage.finish("worker-0").wait(10)
    stage.vanish("worker-0").operator_restarts()
    stage.call_in("worker-1").finish("worker-1")
    assert stage.status.reason == "EarlyStopped"


def test_a_job_that_does_not_ask_for_it_does_not_stop_early() -> None:
    stage = a_running_group(workers=1)
    measured(stage, 60, Figures(evaluation=Evaluation(60, {}, stopped="Because I say so."))).finish()
    assert stage.status.reason == "AllWorkersFinished"


def test_a_figure_beyond_all_numbers_is_left_out() -> None:
    stage = measured(a_running_group(workers=1), 45, Figures({"error": math.inf, "fine": -1.5}))
    assert stage.status.progress
    assert stage.status.progress.metrics == {"fine": -1.5}


def test_a_figure_that_is_looked_at_and_is_no_number_is_a_condition() -> None:
    stage = a_running_group(workers=2, training=TRAINING)
    assert stage.condition("FiguresFinite") is None
    measured(stage, 40, Figures(evaluation=Evaluation(40, {"validation_loss": None, "other": None})))
    assert stage.told("FiguresFinite") == ("False", "FigureNotFinite")
    assert stage.events[-1].message.startswith("validation_loss of the evaluation after step 40 is no finite number")
    measured(stage, 60, Figures(evaluation=Evaluation(60, {"validation_loss": 0.5, "other": 1.0})))
    assert stage.told("FiguresFinite") == ("True", "Finite")


def test_a_figure_that_nothing_looks_at_and_is_no_number_is_one_too() -> None:
    stage = a_running_group(workers=2)
    measured(stage, 40, Figures(evaluation=Evaluation(40, {"validation_loss": 0.5, "other": None})))
    assert stage.told("FiguresFinite") == ("False", "FigureNotFinite")
    told = "other of the evaluation after step 40 is no finite number, so it is left out. Look at what metrics() "
    assert stage.events[-1].message == f"{told}or evaluate() of the task divides by."


def test_a_loss_of_a_script_that_is_no_number_is_one_until_it_is_finite_again() -> None:
    stage = a_running_group(workers=1, training={"command": ["python", "train.py"]})
    at_step(stage, 40)
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, ranks=(RankProgress(0, 40, loss_is_odd=True),)))
    stage.wait(10)
    assert stage.told("FiguresFinite") == ("False", "LossNotFinite")
    assert stage.events[-1].message.startswith(
        "The loss of rank 0 after step 40 is NaN or infinite, so it is not shown."
    )
    measured(stage, 60, Figures())
    assert stage.told("FiguresFinite") == ("True", "Finite")


def test_a_script_whose_figures_nothing_looks_at_is_a_condition() -> None:
    """Without `session.state`, say: `stopEarly` would do nothing, and nobody would know."""
    stage = a_running_group(
        workers=2, training={"command": ["python", "a.py"], "evaluateEverySteps": 20, "stopEarly": EARLY}
    )
    measured(stage, 39, Figures())
    assert stage.condition("FiguresReported") is None
    measured(stage, 45, Figures())
    assert stage.told("FiguresReported") == ("False", "NothingToLookAt")
    assert stage.events[-1].message.startswith("spec.training.stopEarly had nothing to look at so far")
    measured(stage, 60, Figures(evaluation=Evaluation(60, {"validation_loss": 0.5})))
    assert stage.told("FiguresReported") == ("True", "Reported")


def test_a_model_that_will_be_gone_with_its_pods_is_told_when_the_job_begins_and_when_it_ends() -> None:
    stage = a_stage(workers=1)
    stage.private_checkpoints = True
    stage.train(step=5)
    assert [event.reason for event in stage.events].count("ModelNotKept") == 1
    told = next(event for event in stage.events if event.reason == "ModelNotKept")
    assert "name a persistentVolumeClaim or an objectStore" in told.message
    assert stage.told("CheckpointStorage") == ("False", "NotSet")
    stage.finish()
    assert "The model was not kept, as spec.checkpoint.storage is not set." in (stage.status.message or "")
