"""Models that become different ones while they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Line
else:  # a user's module, beside this one
    from small_tasks import Line


class WithThaw(Line):
    """From the third step on its first layer is trained too; with `frost`, not any more."""

    def __init__(self, frost: bool = False) -> None:
        super().__init__()
        self.frost = frost

    @override
    def model(self) -> nn.Module:
        return Thawing(frost=self.frost)


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
