"""Models in layers as people have them: one layer twice, one frozen, one that draws random numbers, one that reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Line
else:  # a user's module, beside this one
    from small_tasks import Line


class WithOneActivation(Line):
    """The same activation between all layers."""

    @override
    def model(self) -> nn.Module:
        activation = nn.Tanh()
        return self.chain(nn.Linear(3, 8), activation, nn.Linear(8, 8), activation, nn.Linear(8, 1), activation)

    def chain(self, *layers: nn.Module) -> nn.Module:
        """The layers in a row."""
        return nn.Sequential(*layers)


class WithManyBuckets(Line):
    """Enough parameters for DistributedDataParallel to average them in three parts."""

    @override
    def model(self) -> nn.Module:
        middle = [nn.Linear(600, 600), nn.Tanh(), nn.Linear(600, 600), nn.Tanh()]
        return nn.Sequential(nn.Linear(3, 600), nn.Tanh(), *middle, nn.Linear(600, 1))


class Chain(nn.Sequential):
    """One of a user's own."""


class WithAChainOfItsOwn(WithOneActivation):
    """Likewise."""

    @override
    def chain(self, *layers: nn.Module) -> nn.Module:
        return Chain(*layers)


class WithALayerTwice(Line):
    """One linear layer computes twice, both times in the second half of the parameters."""

    @override
    def model(self) -> nn.Module:
        twice = nn.Linear(8, 8)
        return nn.Sequential(nn.Linear(3, 64), nn.Linear(64, 8), nn.Tanh(), twice, nn.Tanh(), twice, nn.Linear(8, 1))


class WithDistantTwins(Line):
    """One linear layer computes at both ends."""

    @override
    def model(self) -> nn.Module:
        twice = nn.Linear(3, 3)
        return nn.Sequential(twice, nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), twice, nn.Linear(3, 1))


class WithATiedPair(Line):
    """Two layers of the second half have one weight."""

    @override
    def model(self) -> nn.Module:
        first, second = nn.Linear(3, 3), nn.Linear(3, 3)
        second.weight = first.weight
        return nn.Sequential(nn.Linear(3, 64), nn.Linear(64, 3), first, nn.Tanh(), second, nn.Linear(3, 1))


class WithFrozenNorm(Line):
    """Trains with its normalisation in eval mode."""

    @override
    def model(self) -> nn.Module:
        norm = nn.BatchNorm1d(8)
        norm.running_mean = torch.full((8,), 0.5)
        return nn.Sequential(nn.Linear(3, 8), norm.eval(), nn.Linear(8, 1))


class Noise(nn.Module):
    """Draws in eval mode, too."""

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + 0.01 * torch.randn_like(inputs)


class WithNoise(Line):
    """Draws random numbers between its layers."""

    @override
    def model(self) -> nn.Module:
        return Chain(nn.Linear(3, 8), Noise(), nn.Linear(8, 1))


class Counting(nn.Module):
    """Counts its calls, in a buffer."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return inputs


class WithACount(Line):
    """Says in its figures how often a batch went through it."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), Counting(), nn.Linear(8, 1))

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"calls": sum(float(calls) for calls in model.buffers())}


class Reader(nn.Module):
    """Numbers from texts."""

    @override
    def forward(self, texts: Any) -> Tensor:
        return torch.tensor([[float(text)] for text in texts])


class WithTexts(Line):
    """Reads its inputs, which are texts."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(Reader(), nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    @override
    def dataset(self) -> Any:
        return [(str(number), float(number)) for number in range(10)]

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        assert len(outputs) == len(targets)
        return super().loss(outputs, targets.float()[:, None] / 10)
