"""Tasks of the measurements: noise through a perceptron, or a step that only sleeps."""

import os
import time
from typing import Any

import torch
from torch import Tensor, nn
from trainmaster_trainer.task import Task
from typing_extensions import override


class Noise(Task):
    """The same model as bench/scripts/rpc_parameter_server.py. `paces`: seconds that a step sleeps, by rank."""

    def __init__(self, width: int = 128, paces: list[float] | None = None) -> None:
        self.width, self.paces = width, paces or [0.0]

    @override
    def model(self) -> nn.Module:
        width = self.width
        return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))

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
