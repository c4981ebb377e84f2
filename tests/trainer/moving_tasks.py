"""Models and optimizers that change parameters beside the optimizer's step, or hold on to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Line
else:  # a user's module, beside this one
    from small_tasks import Line


class WithTarget(Line):
    """A network that follows the trained one, as in MoCo. `idle`: a trained parameter is never used."""

    def __init__(self, idle: bool = False) -> None:
        super().__init__()
        self.idle = idle

    @override
    def model(self) -> nn.Module:
        model = Target()
        if self.idle:
            model.idle = nn.Parameter(torch.ones(2))
        return model


class Target(nn.Module):
    """The sum of a layer and of one that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.trained, self.target = nn.Linear(3, 1), nn.Linear(3, 1)
        self.target.requires_grad_(requires_grad=False)
        self.target.load_state_dict(self.trained.state_dict())

    @override
    def forward(self, points: Tensor) -> Tensor:
        if self.training:
            for followed, following in zip(self.trained.parameters(), self.target.parameters(), strict=True):
                following.data = following.data * 0.9 + followed.data * 0.1
        outputs: Tensor = self.trained(points) + self.target(points)
        return outputs


class WithShortRows(Line):
    """An embedding that shortens the rows that it looks up: other ones on each rank."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 8, max_norm=0.5), nn.Flatten(), nn.Linear(24, 1))

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        words = torch.randint(0, 50, (37, 3), generator=torch.Generator().manual_seed(0))
        return words, words.sum(dim=1, keepdim=True) / 100


class WithNoise(Line):
    """Langevin dynamics: the optimizer draws random numbers."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = super().optimizer(parameters)
        optimizer.register_step_post_hook(_add_noise)
        return optimizer


def _add_noise(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for parameter in _held(optimizer):
        parameter.data += 0.01 * torch.randn_like(parameter)


class WithDamage(Line):
    """The memory of rank 1 is hit after step 2, which makes a weight there `value`."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self.value, self.steps = float(value), 0

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = super().optimizer(parameters)
        if os.environ["RANK"] == "1":
            optimizer.register_step_post_hook(self.hit)
        return optimizer

    def hit(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Hit the first number of the first parameter."""
        self.steps += 1
        if self.steps == 2:
            _held(optimizer)[0].data[0, 0] = self.value


class WithBounds(Line):
    """A hook of the optimizer keeps weights small. `held`: those that it has now, and not those of the beginning."""

    def __init__(self, held: bool) -> None:
        super().__init__()
        self.held = held

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = super().optimizer(parameters)
        optimizer.register_step_post_hook(_bound_held if self.held else partial(_bound, parameters))
        return optimizer


def _bound_held(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    _bound(_held(optimizer))


def _bound(parameters: Sequence[Tensor], *_: Any) -> None:
    for parameter in parameters:
        parameter.data.clamp_(-0.2, 0.2)


def _held(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class WithNothing(Line):
    """A parameter without a number in it."""

    @override
    def model(self) -> nn.Module:
        model = super().model()
        model.register_parameter("nothing", nn.Parameter(torch.zeros(0, 4)))
        return model
