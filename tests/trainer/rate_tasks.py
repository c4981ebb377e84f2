"""Tasks whose learning rates change: by a scheduler, by the optimizer's own hook, by the task's factor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Line
else:  # a user's module, beside this one
    from small_tasks import Line


class WithScheduler(Line):
    """A warm-up as people write it for a loop of their own."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = super().optimizer(parameters)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 3, 1.0))
        optimizer.register_step_post_hook(lambda *_: scheduler.step())
        return optimizer


class WithDecay(Line):
    """After each step the optimizer halves its rate by itself."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = super().optimizer(parameters)
        optimizer.register_step_post_hook(_halve)
        return optimizer


class WithFactor(Line):
    """The task's own: nothing is left of the rate at the end."""

    @override
    def learning_rate_factor(self, fraction: float) -> float:
        return 1 - fraction


def _halve(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        group["lr"] /= 2


class WithSchedule(Line):
    """A scheduler of torch, as it is asked for."""

    @override
    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)


class WithCosine(Line):
    """Nothing is left of the rate after six steps."""

    @override
    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)


class WithMilestone(Line):
    """A scheduler that multiplies the rate that it finds, and has not yet."""

    @override
    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, [100])
