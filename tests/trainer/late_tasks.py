"""Models that become different ones while they are trained, and samples that are not the same everywhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Counted, Line
else:  # a user's module, beside this one
    from small_tasks import Counted, Line


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
