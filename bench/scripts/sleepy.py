"""A task whose layers take as long as one likes, forwards and backwards: for the bubble of a pipeline."""

import time
from typing import Any

import torch
from torch import Tensor, nn
from trainmaster_trainer.task import Task


class _Sleep(torch.autograd.Function):
    """Passes on what it gets, late."""

    @staticmethod
    def forward(context: Any, x: Tensor, seconds: float) -> Tensor:
        context.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(context.seconds)
        return gradients[0], None


class _Layer(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Sleep.apply(self.linear(x), self.seconds)
        return result


class Sleepy(Task):
    """`layers` layers, each of which sleeps `seconds` per micro-batch and direction."""

    def __init__(self, layers: int, seconds: float) -> None:
        self.depth, self.seconds = layers, seconds

    def model(self) -> nn.Module:
        """One layer per stage."""
        return nn.Sequential(*(_Layer(self.seconds) for _ in range(self.depth)))

    def dataset(self) -> tuple[Tensor, Tensor]:
        """Noise."""
        points = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
        return points, points

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Squares."""
        return nn.functional.mse_loss(outputs, targets)

    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Plain."""
        return torch.optim.SGD(parameters, lr=0.01)
