"""Tasks that draw random numbers wherever a task can. Reached by `workingDirectory: tests/trainer`."""

import random
import time
from typing import Any

import numpy as np
import torch
from small_tasks import Line, Noisy  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from trainmaster_trainer.task import Task
from typing_extensions import override

WIDTH = 12


class Drawing(Task):
    """Samples, forward passes and losses draw by all three generators.

    `running_means` adds a BatchNorm, `mask` a buffer of -inf.
    """

    def __init__(self, seconds: float = 0.0, running_means: bool = False, mask: bool = False) -> None:
        self.seconds, self.running_means, self.mask = seconds, running_means, mask

    @override
    def model(self) -> nn.Module:
        means = [nn.BatchNorm1d(WIDTH)] if self.running_means else []
        first, last = [nn.Linear(3, WIDTH), nn.Dropout(0.2)], [nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)]
        model = nn.Sequential(*first, *means, *last, nn.Linear(WIDTH, 1))
        if self.mask:
            model[-1].register_buffer("mask", torch.full((3,), -torch.inf))
        return model

    @override
    def dataset(self) -> Any:
        return Noisy()

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        time.sleep(self.seconds)
        drawn = random.random() + float(np.random.rand()) + float(torch.rand(()))  # noqa: NPY002, S311 (as people do)
        return nn.functional.mse_loss(outputs, targets) * (1.0 + 0.1 * drawn)

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.01)

    @override
    def learning_rate_factor(self, fraction: float) -> float:
        return 1.0 - 0.5 * fraction

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """It draws as well: what it says is the same after a restart."""
        return {"chance": random.random() + float(np.random.rand()) + float(torch.rand(()))}  # noqa: NPY002, S311

    @override
    def tensor_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:
        first, second, *_ = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
        return {first: ColwiseParallel(), second: RowwiseParallel()}


class WithADroppedLayer(Line):  # type: ignore[misc]
    """Leaves a layer out of some forward passes, by chance (stochastic depth: Huang et al., ECCV 2016)."""

    class Model(nn.Module):
        """Two layers, the second of which is left out half of the time."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(3, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

        @override
        def forward(self, inputs: Tensor) -> Tensor:
            hidden = self.first(inputs)
            hidden = hidden + self.second(hidden) if random.random() < 0.5 else hidden  # noqa: S311
            result: Tensor = self.last(hidden)
            return result

    @override
    def model(self) -> nn.Module:
        return self.Model()


class NoisySteps(torch.optim.SGD):
    """Adds noise to each gradient (Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics")."""

    @override
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.add_(torch.randn_like(parameter.grad), alpha=0.1 * random.random())  # noqa: S311
        super().step(closure)


class WithNoisySteps(Drawing):
    """The optimizer draws."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return NoisySteps(parameters, lr=0.01, momentum=0.9)
