"""A script that begins with another job's checkpoint trains by its own rates, unless it takes that job's schedule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR
from trainmaster_trainer.scripts.own_rates import own_rates

SAVED = {"optimizer": "SGD", "schedule": "CosineAnnealingLR"}


def an_optimizer(rate: float = 0.1) -> Optimizer:
    return SGD([nn.Parameter(torch.ones(1))], lr=rate, momentum=0.9)


def at_its_end() -> dict[str, Any]:
    """The state of an optimizer whose schedule has ended."""
    optimizer = an_optimizer(1.0)
    schedule = CosineAnnealingLR(optimizer, 2)
    for _ in range(2):
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] < 1e-9
    return optimizer.state_dict()


@pytest.mark.parametrize("schedule", [None, StepLR], ids=["no schedule", "another one"])
def test_a_rate_of_a_schedule_that_is_left_is_not_taken(schedule: type[StepLR] | None) -> None:
    optimizer = an_optimizer()
    things: dict[str, Any] = {"optimizer": optimizer}
    if schedule:
        things["schedule"] = schedule(optimizer, 10)
    with own_rates(things, ["optimizer"], SAVED):
        optimizer.load_state_dict(at_its_end())
    group = optimizer.param_groups[0]
    assert (group["lr"], group.get("initial_lr", 0.1), group["momentum"]) == (0.1, 0.1, 0.9)


@pytest.mark.parametrize(
    ("taken", "kinds"),
    [(["optimizer", "schedule"], SAVED), (["optimizer"], {"optimizer": "SGD"})],
    ids=["with its schedule", "of a job that had none"],
)
def test_else_it_is(taken: list[str], kinds: dict[str, str]) -> None:
    optimizer = an_optimizer()
    with own_rates({"optimizer": optimizer, "schedule": CosineAnnealingLR(optimizer, 2)}, taken, kinds):
        optimizer.load_state_dict(at_its_end())
    assert optimizer.param_groups[0]["lr"] < 1e-9
