"""What a script reports decides, as a task's evaluations do: the best checkpoint is kept, and training stops early."""

from __future__ import annotations

from trainmaster.wire.training import Aim

from tests.trainer.ranks import Job, NewJob, Options
from tests.trainer.scripts.test_session_state import a_script
from tests.trainer.test_evaluations import saved

SCORES = {"2": 0.1, "4": 0.5, "6": 0.9, "8": 0.3, "10": 0.8}
AIMS: Options = {
    "evaluate_every": 2,
    "checkpoint_every": 5,
    "checkpoint_keep": 1,
    "checkpoint_best": Aim("score", "max"),
    "stop_early": Aim("score", "max", 3),
}


def scored(job: Job) -> Job:
    return job.calling("keeping_scripts:scored", scores=SCORES, until=40)


def test_a_script_keeps_the_best_and_stops_as_if_nobody_had_killed_it(new_job: NewJob) -> None:
    calm = scored(a_script(new_job, "calm", **AIMS)).run(2)
    assert saved(calm) == [6, 12]
    assert [calm.answer(rank) for rank in range(2)] == [0, 0], "it ends with success"
    job = scored(a_script(new_job, "killed", **AIMS))
    running = job.start(2)
    running.reach(7)
    running.kill()
    job.run(2, attempt=2)
    assert saved(job) == [6, 12]
    for step in (6, 12):
        assert job.manifest(step)["scalars"]["evaluations"] == calm.manifest(step)["scalars"]["evaluations"]
        assert job.manifest(step)["model_sha256"] == calm.manifest(step)["model_sha256"]
    again = job.start(2, attempt=3)
    assert again.wait() == [0, 0], again.output()
    told = again.pages[0].read_figures()
    assert told
    assert told.evaluation
    assert (told.evaluation.step, told.evaluation.best_step) == (12, 6)
    assert told.evaluation.stopped.startswith("Training stopped early after step 12: score has not become better")


def test_a_figure_that_was_not_reported_ends_the_job_with_the_cure(new_job: NewJob) -> None:
    aim: Options = {"evaluate_every": 2, "checkpoint_best": Aim("accuracy", "max")}
    running = scored(a_script(new_job, **aim)).start(1)
    assert running.wait() == [78]
    assert "spec.checkpoint.best.metric: the evaluation has no figure 'accuracy'; it has ['score']" in running.output()
