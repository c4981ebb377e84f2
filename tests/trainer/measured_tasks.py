"""Tasks that measure more than their loss. Reached by `workingDirectory: tests/trainer`."""

import math
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from trainmaster_trainer import rank_report
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Line
else:
    from small_tasks import Line

VALIDATION = 23  # samples, which no number of ranks here divides


class Measured(Line):
    """A line with metrics and validation samples; its own figure draws random numbers."""

    @override
    def metrics(self, outputs: Any, targets: Any) -> dict[str, Tensor | float]:
        return {"error": (outputs - targets).abs().mean(), "first": float(targets.mean())}

    @override
    def validation_dataset(self) -> tuple[Tensor, Tensor]:
        points = torch.randn(VALIDATION, 3, generator=torch.Generator().manual_seed(1))
        return points, points.sum(dim=1, keepdim=True)

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        assert not model.training
        return {"drawn": float(torch.rand(())), "training": float(model.training)}


class MeasuredApart(Measured):
    """Says how it is split."""

    @override
    def tensor_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:
        return {"0": ColwiseParallel(), "2": RowwiseParallel()}


class MeasuredWithRunningMeans(Measured):
    """A model whose buffers a careless evaluation would change."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        model.train()
        model(torch.randn(16, 3))
        return {}


class Scripted(Line):
    """Has the figures of a list, one for each evaluation, by the step; others are no better."""

    def __init__(self, scores: dict[str, float], seconds: float = 0.0, dropout: float = 0.0) -> None:
        super().__init__(seconds=seconds, dropout=dropout)
        self.scores = scores

    class Model(nn.Module):
        """A line that counts its steps."""

        steps: Tensor

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        @override
        def forward(self, inputs: Tensor) -> Tensor:
            if self.training:
                self.steps += 1
            result: Tensor = self.inner(inputs)
            return result

    @override
    def model(self) -> nn.Module:
        return self.Model(super().model())

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        step = str(int(next(model.buffers())))
        return {"score": self.scores.get(step, 0.0), "noise": float(torch.rand(()))}


class Wrong(Measured):
    """Does one thing wrong, from its third batch on."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.batches = what, 0

    @override
    def metrics(self, outputs: Any, targets: Any) -> Any:
        self.batches += 1
        rank = os.environ["RANK"]
        return {
            "loss": {"loss": 0.5},
            "text": {"error": "low"},
            "many": {"error": outputs.repeat(2, 1)},
            "list": [0.5],
            "missing on one rank": {} if rank == "1" else {"error": 0.5},
            "missing later": {"error": 0.5} if self.batches < 3 else {"mistake": 0.5},
            "nan": {"error": math.nan if self.batches == 3 else 0.5},
        }.get(self.what, {"error": 0.5})

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        if self.what == "changes a parameter":
            with torch.no_grad():
                next(model.parameters()).add_(1.0)
        if self.what == "raises":
            raise KeyError("no such figure")
        return {"error": 1.0} if self.what == "twice" else {}


class Silent(Line):
    """Has nothing to evaluate."""


class Emptied(Measured):
    """Has validation samples, and none of them."""

    @override
    def validation_dataset(self) -> tuple[Tensor, Tensor]:
        return torch.empty(0, 3), torch.empty(0, 1)


class Breaking(Measured):
    """Fails in a step (0: in none), on all ranks or on the last one, which waits `patience` seconds for the others."""

    def __init__(self, step: int, alone: bool = False, patience: float = 60.0) -> None:
        super().__init__()
        self.step, self.calls = step, 0
        self.breaks = not alone or int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
        rank_report.LAST_WORDS = timedelta(seconds=patience if self.breaks else max(patience, 5.0))

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        self.calls += 1
        if self.breaks and self.calls == self.step:
            raise KeyError("what this step needs")
        return super().loss(outputs, targets)


class Killer(Measured):
    """Dies by SIGKILL in the evaluation after a step, once in the life of the job."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = Path(marker)

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), 9)
        return super().evaluate(model)
