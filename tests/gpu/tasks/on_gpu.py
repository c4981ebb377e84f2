"""A task that fails unless its model and its samples are on a GPU, and whose model depends on what it draws there."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from trainmaster_trainer.task import Task
from typing_extensions import override


class Points(Dataset[tuple[Tensor, Tensor]]):
    """Samples that data workers can make."""

    def __len__(self) -> int:
        return 256

    @override
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        point = torch.randn(16, generator=torch.Generator().manual_seed(index))
        return point, point.sum(dim=0, keepdim=True)


class OnGpu(Task):
    """`raise_at`: the step at which it does as `ill` says: fills the memory, or asks for a class that is not there."""

    def __init__(self, raise_at: int = 0, ill: str = "", in_memory: bool = True) -> None:
        self.raise_at, self.ill, self.in_memory, self.calls = raise_at, ill, in_memory, 0
        self.hoard: list[Tensor] = []
        Path(f"rank-{os.environ['RANK']}-{os.environ['TRAINMASTER_ATTEMPT']}.txt").write_text(f"{os.getpid()} 1")

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))

    @override
    def dataset(self) -> "Dataset[tuple[Tensor, Tensor]] | tuple[Tensor, Tensor]":
        points = Points()
        if not self.in_memory:
            return points
        inputs, targets = zip(*(points[index] for index in range(len(points))), strict=True)
        return torch.stack(inputs), torch.stack(targets)

    @override
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        assert outputs.is_cuda, "the model is on the CPU"
        assert targets.is_cuda, "the samples are on the CPU"
        self.calls += 1
        if self.calls == self.raise_at and self.ill == "memory":
            while True:
                self.hoard.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
        if self.calls == self.raise_at and self.ill == "index":
            return nn.functional.cross_entropy(outputs, torch.full((len(outputs),), 7, device="cuda"))
        return nn.functional.mse_loss(outputs, targets) + torch.rand((), device="cuda") * outputs.square().mean()

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.01)

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        points = torch.randn(64, 16, generator=torch.Generator().manual_seed(1)).cuda()
        with torch.no_grad():
            return {"error": float((model(points) - points.sum(dim=1, keepdim=True)).square().mean())}
