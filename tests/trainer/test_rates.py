"""Learning rates: the task's factor, the optimizer's own changes, and schedulers, which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CyclicLR, ExponentialLR, LambdaLR, OneCycleLR, ReduceLROnPlateau, SequentialLR
from trainmaster_trainer.answers import make_optimizer
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.tasks.digits import Digits
from typing_extensions import override

from tests.trainer.ranks import Job, NewJob, Options


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: LambdaLR(optimizer, lambda step: step / 10),
        lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=10),
        lambda optimizer: CyclicLR(optimizer, 0.01, 0.1),
        lambda optimizer: SequentialLR(
            optimizer, [ExponentialLR(optimizer, 0.9), ExponentialLR(optimizer, 0.5)], milestones=[3]
        ),
        ReduceLROnPlateau,
    ],
)
def test_a_scheduler_is_refused_with_the_cure(schedule: Any) -> None:
    class Given(Digits):
        @override
        def optimizer(self, parameters: Any) -> Optimizer:
            optimizer = SGD(parameters, lr=0.1)
            self.kept = schedule(optimizer)
            return optimizer

    with pytest.raises(ConfigurationError, match=r"Leave it out and override Given.learning_rate_factor\(fraction\)"):
        make_optimizer(Given(), list(Given().model().parameters()))


def test_a_rate_that_a_task_remembers_in_the_groups_is_no_scheduler() -> None:
    class Given(Digits):
        @override
        def optimizer(self, parameters: Any) -> Optimizer:
            return SGD([{"params": list(parameters), "initial_lr": 0.1}], lr=0.1)

    assert make_optimizer(Given(), list(Given().model().parameters()))


@pytest.mark.parametrize("strategy", ["OneDevice", "FullySharded"])
def test_so_it_is_by_every_strategy(new_job: NewJob, strategy: str) -> None:
    running = new_job(task="rate_tasks:WithScheduler", strategy=strategy).start(1)
    assert running.wait() == [78]
    assert "spec.training.task: a scheduler changes the rates of the optimizer of WithScheduler" in running.output()


@pytest.mark.parametrize("strategy", ["AllReduce", "FullySharded"])
def test_a_rate_that_the_optimizer_changes_itself_goes_on_after_a_restart(new_job: NewJob, strategy: str) -> None:
    plan: Options = {"task": "rate_tasks:WithDecay", "strategy": strategy}
    whole = new_job("whole", **plan).run(2)
    assert rate_of(whole, 6) == pytest.approx(0.01 / 2**6)
    job = new_job("parts", **plan).but(steps=2).run(2).but(steps=6).run(2, attempt=2)
    assert rate_of(job, 6) == rate_of(whole, 6)
    assert job.manifest(6)["model_sha256"] == whole.manifest(6)["model_sha256"]


def test_who_goes_on_from_another_jobs_checkpoint_begins_with_the_rate_of_its_own(new_job: NewJob) -> None:
    """Nothing was left of the other's, whose task had a factor."""
    before = new_job("first", task="rate_tasks:WithFactor").run(2)
    job = new_job("second", steps=8, resume_from=str(before.checkpoints())).run(2)
    assert rate_of(job, 8) == 0.01
    assert job.manifest(8)["model_sha256"] != before.manifest(6)["model_sha256"]


@pytest.mark.parametrize(
    ("task", "strategy"),
    [
        ("small_tasks:Line", "OneDevice"),
        ("rate_tasks:WithMilestone", "OneDevice"),
        ("small_tasks:Line", "FullySharded"),
    ],
)
def test_the_end_of_anothers_schedule_is_no_beginning(new_job: NewJob, task: str, strategy: str) -> None:
    before = new_job("first", task="rate_tasks:WithCosine", strategy=strategy).run(1)
    assert rate_of(before, 6) == pytest.approx(0.0)
    job = new_job("second", task=task, strategy=strategy, steps=8, resume_from=str(before.checkpoints())).run(1)
    assert rate_of(job, 8) == 0.01


def rate_of(job: Job, step: int) -> Any:
    """The first group's, as the checkpoint of this step has it."""
    return job.manifest(step)["scalars"]["optimizer"]["groups"][0]["current"]["lr"]
