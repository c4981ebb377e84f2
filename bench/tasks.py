"""Tasks of the measurements: noise through a perceptron or through wide layers, or a step that only sleeps."""

import os
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset
from trainmaster_trainer.task import Task
from typing_extensions import override


class Noise(Task):
    """The same model as bench/scripts/rpc_parameter_server.py. `paces`: seconds that a step sleeps, by rank."""

    def __init__(self, width: int = 128, layers: int = 1, paces: list[float] | None = None) -> None:
        self.width, self.layers, self.paces = width, layers, paces or [0.0]

    @override
    def model(self) -> nn.Module:
        width = self.width
        hidden = [part for _ in range(self.layers) for part in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(4096, 64, generator=generator), torch.randint(0, 10, (4096,), generator=generator)

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        pace = self.paces[min(int(os.environ["RANK"]), len(self.paces) - 1)]
        if pace:
            time.sleep(pace)
        return nn.functional.cross_entropy(outputs, targets)

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.001, momentum=0.9)


class Wide(Noise):
    """12 equal tensors, 1.2 MB: as many bytes for each of 1, 2, 3 or 4 servers, and little to compute."""

    @override
    def model(self) -> nn.Module:
        layers = [nn.Linear(160, 160, bias=False) for _ in range(12)]
        return nn.Sequential(nn.ZeroPad1d((0, 96)), *layers)


class Slow(Dataset[tuple[Tensor, int]]):
    """Samples that each take some seconds, as a picture does that is read and decoded."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1 << 16

    @override
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(self.seconds)
        return torch.full((64,), index / len(self)), index % 10


class SlowSamples(Noise):
    """The perceptron, learning from them."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    @override
    def dataset(self) -> Any:
        return Slow(self.seconds)


class SlowValidation(Noise):
    """The perceptron, tried on samples that take a while."""

    def __init__(self, samples: int, seconds: float) -> None:
        super().__init__()
        self.samples, self.seconds = samples, seconds

    @override
    def validation_dataset(self) -> Any:
        return Subset(Slow(self.seconds), range(self.samples))
