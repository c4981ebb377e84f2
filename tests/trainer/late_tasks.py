"""Models that become different ones while they are trained, and samples that are not the same everywhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Counted, Line, Struck
else:  # a user's module, beside this one
    from small_tasks import Counted, Line, Struck


class StruckThenStill(Struck):
    """It rests in the step after the blow, so that who kills it does so before a loss has told of it."""

    @override
    def _strike(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        before = self.marker.exists()
        super()._strike(optimizer)
        if self.marker.exists() and not before:
            self.seconds = 1000.0


class WithThaw(Line):
    """From the third step on its first layer is trained too; with `frost`, not any more."""

    def __init__(self, frost: bool = False) -> None:
        super().__init__()
        self.frost = frost

    @override
    def model(self) -> nn.Module:
        return Thawing(frost=self.frost)


class WithObserver(Line):
    """A buffer gets its shape from the first samples, as those of torch.ao.quantization; `absent`: it is None first."""

    def __init__(self, absent: bool = False) -> None:
        super().__init__()
        self.absent = absent

    @override
    def model(self) -> nn.Module:
        return Observing(absent=self.absent)


class WithCounter(Line):
    """A buffer counts the outputs of its samples, in numbers of this dtype, and moves the loss."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.dtype = dtype

    @override
    def model(self) -> nn.Module:
        counter = Counter(getattr(torch, self.dtype))
        model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1), counter)
        model.register_parameter("places", nn.Parameter(counter.count.clone(), requires_grad=False))
        return model


class WithMemory(Line):
    """A layer keeps the mean of what it has seen, and not in a buffer."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(Centering(), nn.Linear(3, 1))


class WithMean(Line):
    """The same in a buffer."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(Following(), nn.Linear(3, 1))


class Arriving(Counted):
    """Samples are still being written: who looks later has more."""

    def __init__(self, samples: int, for_each_rank: int = 0, seconds: float = 0.0) -> None:
        super().__init__(samples + for_each_rank * int(os.environ["RANK"]))
        self.seconds = seconds


class Thawing(nn.Module):
    """See `WithThaw`."""

    count: Tensor

    def __init__(self, *, frost: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 1)
        self.first.requires_grad_(frost)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.frost = frost

    @override
    def forward(self, points: Tensor) -> Tensor:
        self.count += 1
        self.first.requires_grad_(self.frost == (int(self.count) < 3))
        outputs: Tensor = self.last(self.first(points))
        return outputs


class Observing(nn.Module):
    """See `WithObserver`."""

    lowest: Tensor

    def __init__(self, *, absent: bool) -> None:
        super().__init__()
        self.line = nn.Linear(3, 1)
        self.register_buffer("lowest", None if absent else torch.tensor([]))

    @override
    def forward(self, points: Tensor) -> Tensor:
        self.lowest = points.amin(dim=0)
        outputs: Tensor = self.line(points)
        return outputs


class Counter(nn.Module):
    """See `WithCounter`."""

    count: Tensor

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4, 2).to(dtype).t())

    @override
    def forward(self, points: Tensor) -> Tensor:
        bounds = torch.linspace(-1, 1, 8)
        above = (points > bounds).sum(dim=0).view(2, 4)
        self.count.copy_((self.count.float() + above) % (2 if self.count.dtype == torch.bool else 8))
        return points + 0.1 * (self.count.float().flatten() * bounds).sum()


class Centering(nn.Module):
    """See `WithMemory`."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(3)

    @override
    def forward(self, points: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * points.mean(dim=0)
        return points - self.mean

    @override
    def get_extra_state(self) -> Tensor:
        return self.mean

    @override
    def set_extra_state(self, state: Tensor) -> None:
        self.mean = state


class Following(nn.Module):
    """See `WithMean`."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    @override
    def forward(self, points: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * points.mean(dim=0))
        return points - self.mean.clone()
