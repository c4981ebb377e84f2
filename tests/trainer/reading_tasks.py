"""Datasets that do something with each sample when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Line
else:  # a user's module, beside this one
    from small_tasks import Line

Sample = tuple[Tensor, Tensor]


class Read(Dataset[Sample]):
    """Samples that are made anew whenever they are read: with noise, or not at all from number `lost` on."""

    def __init__(self, points: Tensor, targets: Tensor, noise: float, lost: int | None) -> None:
        self.points, self.targets, self.noise, self.lost = points, targets, noise, lost

    def __len__(self) -> int:
        return len(self.points)

    @override
    def __getitem__(self, index: int) -> Sample:
        if self.lost is not None and index >= self.lost:
            raise FileNotFoundError(2, "No such file or directory", f"sample-{index}.npy")
        return self.points[index] + self.noise * torch.randn(3), self.targets[index]


class WithReadSamples(Line):
    """A line through them."""

    def __init__(self, noise: float = 0.0, lost: int | None = None) -> None:
        super().__init__()
        self.noise, self.lost = noise, lost

    @override
    def dataset(self) -> Dataset[Sample]:  # type: ignore[override]
        return Read(*super().dataset(), self.noise, self.lost)
