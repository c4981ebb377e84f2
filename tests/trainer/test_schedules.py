"""Schedulers of torch go along one curve, whatever restarts there are, and their state is JSON in checkpoints."""

import json
from typing import Any

import pytest
import torch
from torch.optim import SGD, AdamW, Optimizer, lr_scheduler
from trainmaster_trainer.answers import make_optimizer
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.rates import Rates
from trainmaster_trainer.tasks.digits import Digits
from typing_extensions import override

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import NewJob, Options

SCHEDULES: list[Any] = [
    lambda one: lr_scheduler.StepLR(one, 3, gamma=0.5),
    lambda one: lr_scheduler.MultiStepLR(one, [2, 2, 5]),
    lambda one: lr_scheduler.CosineAnnealingLR(one, T_max=10),
    lambda one: lr_scheduler.CosineAnnealingWarmRestarts(one, T_0=3),
    lambda one: lr_scheduler.OneCycleLR(one, 0.1, total_steps=12),
    lambda one: lr_scheduler.CyclicLR(one, 0.01, 0.1, step_size_up=2),
    lambda one: lr_scheduler.LambdaLR(one, lambda step: min(1.0, step / 4)),
    lambda one: lr_scheduler.SequentialLR(
        one, [lr_scheduler.LinearLR(one, 0.1, total_iters=3), lr_scheduler.ExponentialLR(one, 0.9)], milestones=[3]
    ),
]


def rates_of(schedule: Any) -> tuple[Rates, Optimizer]:
    """Rates of a task with this schedule."""

    class Given(Digits):
        @override
        def scheduler(self, optimizer: Optimizer) -> Any:
            return schedule(optimizer)

    optimizer = SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
    return Rates(Given(), optimizer), optimizer


def walked(rates: Rates, optimizer: Optimizer, steps: int) -> list[tuple[float, float]]:
    """The rate and momentum of each of these steps."""
    found = []
    for _ in range(steps):
        rates.set(0.5)
        optimizer.step()
        found.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]))
    return found


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_curve_is_torch_s_and_goes_on_where_it_was(schedule: Any) -> None:
    bare = SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
    scheduler, expected = schedule(bare), []
    for _ in range(9):
        bare.step()
        expected.append((bare.param_groups[0]["lr"], bare.param_groups[0]["momentum"]))
        scheduler.step()
    whole = walked(*rates_of(schedule), 9)
    assert whole == expected
    for at in (0, 1, 4):
        before, optimizer = rates_of(schedule)
        walked(before, optimizer, at)
        saved = json.loads(json.dumps(before.schedule.state()))
        after, other = rates_of(schedule)
        other.param_groups[0]["momentum"] = optimizer.param_groups[0]["momentum"]  # as ModelState does it
        after.schedule.restore(saved)
        assert walked(after, other, 9 - at) == expected[at:]


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lr_scheduler.ReduceLROnPlateau, "waits for a figure"),
        (lambda _: 3, "gave int. Return one of torch.optim.lr_scheduler"),
        (lambda _: lr_scheduler.StepLR(SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0), 3), "of another optimizer"),
    ],
)
def test_what_is_no_schedule_of_steps_is_refused(schedule: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        rates_of(schedule)


def test_a_schedule_that_is_shorter_than_the_training_is_refused_with_the_cure() -> None:
    rates, optimizer = rates_of(lambda one: lr_scheduler.OneCycleLR(one, 0.1, total_steps=5))
    with pytest.raises(ConfigurationError, match=r"OneCycleLR, takes no further step: .*spec\.training\.steps"):
        walked(rates, optimizer, 9)
    own, optimizer = rates_of(lambda one: lr_scheduler.LambdaLR(one, lambda step: 1.0 if step < 2 else float("a")))
    with pytest.raises(ValueError, match="could not convert"):
        walked(own, optimizer, 5)


def test_several_optimizers_are_refused_with_the_cure() -> None:
    class Given(Digits):
        @override
        def optimizer(self, parameters: Any) -> Any:
            return [AdamW(parameters[:1]), SGD(parameters[1:], lr=0.1)]

    with pytest.raises(ConfigurationError, match="gave 2 optimizers, and a step takes one"):
        make_optimizer(Given(), list(Given().model().parameters()))


SCHEDULED: Options = {"task": "rate_tasks:WithSchedule", "steps": 8}


@pytest.mark.parametrize("strategy", ["AllReduce", "FullySharded"])
def test_a_restart_goes_on_along_the_curve(new_job: NewJob, strategy: str) -> None:
    whole = new_job("whole", **SCHEDULED, strategy=strategy).run(2)
    job = new_job("parts", **SCHEDULED, strategy=strategy).but(steps=4).run(2).but(steps=8).run(2, attempt=2)
    assert job.manifest(8)["scalars"]["schedule"] == whole.manifest(8)["scalars"]["schedule"]
    assert job.manifest(8)["model_sha256"] == whole.manifest(8)["model_sha256"]


@pytest.mark.parametrize(("strategy", "servers"), [("Gossip", 0), ("ParameterServer", 1)])
def test_members_with_steps_of_their_own_refuse_a_scheduler(new_crew: NewCrew, strategy: str, servers: int) -> None:
    """A server's optimizer takes a step for each push, and a peer's one for each gradient of its own."""
    crew = new_crew(2, servers, strategy=strategy, **SCHEDULED).start()
    assert crew.wait(2 if servers else 0) == 78
    assert f"{strategy} takes other steps than the training counts" in crew.output()
    assert "Write learning_rate_factor(self, fraction) in its place" in crew.output()
