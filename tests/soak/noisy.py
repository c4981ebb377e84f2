"""The task of the soak campaign: it draws random numbers wherever a task can, and writes down who trains.

Dropout draws in the model; the samples draw from torch, NumPy and Python; the loss draws where `draws` is set. So a
recovery that restores anything but the right generators ends with another model.
"""

import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.utils.data import Dataset
from trainmaster_trainer.task import Task
from typing_extensions import override

SAMPLES, FEATURES, CLASSES = 101, 7, 3


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Points with noise from all three generators of a process. With `helper`, a child process hands each one over."""

    def __init__(self, inputs: Tensor, targets: Tensor, helper: bool) -> None:
        self.inputs, self.targets, self.needs_helper = inputs, targets, helper
        self.helper: subprocess.Popen[bytes] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    @override
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.needs_helper:
            self.ask_helper()
        noise = torch.randn(FEATURES) + random.random() + float(np.random.rand())
        return self.inputs[index] + 0.02 * noise, self.targets[index]

    def ask_helper(self) -> None:
        """Wait for the word of a child process, as for one that decodes images; an error if it has died."""
        if self.helper is None:
            self.helper = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.helper.stdin is not None
        assert self.helper.stdout is not None
        self.helper.stdin.write(b"?")
        if not self.helper.stdout.read(1):
            raise RuntimeError("the helper process has died")


class Noisy(Task):
    """A small perceptron with dropout. `seconds` is how long a step takes at least.

    The file ranks/PID says which rank the process is, and has a full stop for each loss that was asked for.
    """

    def __init__(
        self, hidden: int = 16, seconds: float = 0.02, draws: bool = False, adam: bool = True, helper: bool = False
    ) -> None:
        self.hidden, self.seconds, self.draws, self.adam, self.helper = hidden, seconds, draws, adam, helper
        note = Path("ranks") / str(os.getpid())
        note.parent.mkdir(exist_ok=True)
        self.note = note.open("wb", buffering=0)
        self.note.write(f"{os.environ['RANK']} ".encode())

    @override
    def model(self) -> nn.Module:
        wide = self.hidden
        return nn.Sequential(
            nn.Linear(FEATURES, wide), nn.Tanh(), nn.Dropout(0.2), nn.Linear(wide, wide), nn.Tanh(), nn.Dropout(0.1),
            nn.Linear(wide, wide), nn.Tanh(), nn.Linear(wide, CLASSES),
        )  # fmt: skip

    @override
    def dataset(self) -> Samples:
        inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(5))
        return Samples(inputs, (inputs.sum(dim=1) > 0).long() + (inputs[:, 0] > 1).long(), self.helper)

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        self.note.write(b".")
        time.sleep(self.seconds)
        loss = nn.functional.cross_entropy(outputs, targets)
        if self.draws:
            loss = loss * (1 + 0.1 * random.random() + 0.1 * float(np.random.rand()) + 0.1 * torch.rand(()).item())
        return loss

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self.adam:
            return torch.optim.AdamW(parameters, lr=0.01)
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    @override
    def tensor_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:
        return {"0": ColwiseParallel(), "3": RowwiseParallel(), "6": ColwiseParallel(), "8": RowwiseParallel()}
