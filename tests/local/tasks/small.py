"""A tiny task for the local tests: it says who runs, and can wait at a gate until the test lets it through."""

import os
import sys
from pathlib import Path

import torch
from torch import nn
from trainmaster_trainer.task import Task
from typing_extensions import override


class Small(Task):
    """`hold_at`: the step of each process at which it opens the pipe `gate`, which waits for a writer.

    `hold_again`: the same for processes of later attempts, which have fewer steps left. `draws`: with random numbers.
    """

    def __init__(
        self, hold_at: int = 0, hold_again: int = 0, width: int = 8, raise_at: int = 0, draws: bool = False
    ) -> None:
        rank, attempt = os.environ["RANK"], os.environ["TRAINMASTER_ATTEMPT"]
        self.hold_at = hold_again if hold_again and attempt != "1" else hold_at
        self.width = width
        self.raise_at, self.draws = raise_at, draws
        self.calls = 0
        self.me = f"{rank}-{attempt}"
        Path(f"rank-{rank}-{attempt}.txt").write_text(f"{os.getpid()} {os.environ['WORLD_SIZE']}")
        sys.stdout.write(f"rank {rank} is here\n")

    @override
    def model(self) -> nn.Module:
        return nn.Linear(self.width, 1)

    @override
    def dataset(self) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(64, self.width, generator=torch.Generator().manual_seed(0))
        return inputs, inputs.sum(dim=1, keepdim=True)

    @override
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == self.hold_at:
            Path(f"held-{self.me}").touch()
            Path("gate").read_bytes()
        if self.calls == self.raise_at:
            self.stumble()
        if self.draws:  # as dropout does; other numbers on each rank
            outputs = outputs * torch.empty_like(outputs).bernoulli_(0.8)
        return nn.functional.mse_loss(outputs, targets)

    def stumble(self) -> None:
        """A frame of the user's own for the traceback."""
        raise LookupError(f"no word for step {self.calls}")

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01)
