"""Tasks for tests: quick, or slow on purpose. Reached by `workingDirectory: tests/trainer`."""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from trainmaster_trainer.checkpoint.pieces import local
from trainmaster_trainer.task import Task
from typing_extensions import override

SAMPLES = 37


class Line(Task):
    """A plane through points. `width` makes another model of it."""

    def __init__(self, width: int = 1, seconds: float = 0.0, dropout: float = 0.0) -> None:
        self.width, self.seconds, self.dropout = width, seconds, dropout

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8 * self.width), nn.Dropout(self.dropout), nn.Linear(8 * self.width, 1))

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        points = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(0))
        return points, points.sum(dim=1, keepdim=True)

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        time.sleep(self.seconds)
        return nn.functional.mse_loss(outputs, targets)

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


class Tallied(Line):
    """Adds a byte to a file for each sample of which it computes a loss."""

    def __init__(self, tally: str, seconds: float = 0.0) -> None:
        super().__init__(seconds=seconds)
        self.tally = tally

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        with Path(self.tally).open("ab") as file:
            file.write(b"." * len(outputs))
        return super().loss(outputs, targets)


class LineWithRunningMeans(Line):
    """A model with buffers, which differ between ranks after every step."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(self.dropout), nn.Linear(8, 1))


class Turned(Line):
    """A model of as many numbers as the Line's, whose first matrix lies the other way."""

    class First(nn.Linear):
        """Its weight is turned."""

        def __init__(self) -> None:
            super().__init__(3, 8)
            self.weight = nn.Parameter(self.weight.detach().t().contiguous())

        @override
        def forward(self, input: Tensor) -> Tensor:
            return nn.functional.linear(input, self.weight.t(), self.bias)

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(self.First(), nn.Dropout(self.dropout), nn.Linear(8, 1))


class Marked(Line):
    """A buffer is 1 on rank 0 and 2 on rank 1, as soon as it has trained.

    With a folder where they `meet`, none of two ranks trains all of it before the other has begun.
    """

    def __init__(self, meet: str = "") -> None:
        super().__init__()
        self.meet = meet

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        if self.meet:
            Path(self.meet, os.environ["RANK"]).touch()
            while len([*Path(self.meet).iterdir()]) < 2:
                time.sleep(0.001)
        return super().loss(outputs, targets)

    class Model(nn.Linear):
        """A line."""

        mark: Tensor

        def __init__(self) -> None:
            super().__init__(3, 1)
            self.register_buffer("mark", torch.zeros(()))

        @override
        def forward(self, input: Tensor) -> Tensor:
            if self.training:
                self.mark.fill_(1.0 + int(os.environ["RANK"]))
            return super().forward(input)

    @override
    def model(self) -> nn.Module:
        return self.Model()

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"mark": float(next(model.buffers()))}


class LineWithAdam(Line):
    """The same model, another optimizer."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)


class Poisoned(Line):
    """The loss of one step is no number on rank 1, and is the same as without poison on all others."""

    def __init__(self, step: int, poison: str = "nan") -> None:
        super().__init__()
        self.step, self.poison, self.calls = step, float(poison), 0

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        self.calls += 1
        poison = self.poison if self.calls == self.step and os.environ["RANK"] == "1" else 1.0
        return super().loss(outputs, targets) * poison


class WithBlank(Line):
    """A parameter that nothing uses, and that nobody has written."""

    @override
    def model(self) -> nn.Module:
        model = super().model()
        model.register_parameter("blank", nn.Parameter(torch.full((3,), torch.nan)))
        return model


class Rooted(Line):
    """The root of 0, whose gradient is none: each loss is finite, and all weights are no numbers after one step."""

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        root: Tensor = (0.0 * outputs).sum().sqrt()
        return super().loss(outputs, targets) + root


class Uneven(Line):
    """Rank 1 is slower than all others."""

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        time.sleep(self.seconds if os.environ["RANK"] == "1" else 0.0)
        return nn.functional.mse_loss(outputs, targets)


class LineWithPlainSGD(Line):
    """Without momentum, a step is linear in the gradient."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05)


class Wide(Line):
    """Enough parameters for compression to show."""

    def __init__(self) -> None:
        super().__init__(width=100)


class WideWithAFrozenLayer(Wide):
    """Of which three quarters of the first layer's numbers are not trained."""

    @override
    def model(self) -> nn.Module:
        model = super().model()
        next(model.parameters()).requires_grad = False
        return model


class Needy(Line):
    """Has an argument without a default, and one that it refuses."""

    def __init__(self, size: int, colour: str = "red") -> None:
        super().__init__(size)
        if colour == "blue":
            raise ValueError("blue is out of stock")


class LocalEntryNotFoundError(FileNotFoundError, ValueError):
    """As a model hub's client has it for a hub that it cannot reach."""


class Reading(Line):
    """Reads what is not as it should be when it is made."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        if kind == "UnicodeDecodeError":
            b"\xff".decode()
        if kind == "JSONDecodeError":
            json.loads("<html>502 Bad Gateway</html>")
        raise LocalEntryNotFoundError("Cannot find the requested files in the disk cache, and the hub is away")


def not_a_task() -> None:
    """Nothing that could be trained."""


class Paced(Line):
    """Slow on some ranks: seconds of a step by rank; the last holds for all further ones."""

    def __init__(self, paces: list[float]) -> None:
        super().__init__()
        self.paces = paces

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        rank = int(os.environ["RANK"])
        time.sleep(self.paces[min(rank, len(self.paces) - 1)])
        return nn.functional.mse_loss(outputs, targets)

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.001)  # gradients one step old make the Line's own diverge


class Counting(Task):
    """A model that counts: its weights say how often each sample was used, on each server.

    The loss is minus the sum over the samples' own weights, so that plain SGD at rate 1 adds 1 for each sample.
    """

    def __init__(self, samples: int = 64, parts: int = 3, seconds: float = 0.0) -> None:
        self.samples, self.parts, self.seconds = samples, parts, seconds

    @override
    def model(self) -> nn.Module:
        return Counters(self.samples, self.parts)

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        return torch.eye(self.samples), torch.zeros(self.samples)

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        time.sleep(self.seconds)
        result: Tensor = -outputs.sum(dim=1).mean() * len(outputs)
        return result

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1.0)


class Counters(nn.Module):
    """Several tensors of one counter per sample, so that several servers have one."""

    def __init__(self, samples: int, parts: int) -> None:
        super().__init__()
        self.counts = nn.ParameterList(nn.Parameter(torch.zeros(samples)) for _ in range(parts))

    @override
    def forward(self, chosen: Tensor) -> Tensor:
        result: Tensor = torch.stack([chosen @ count for count in self.counts], dim=1)
        return result


class Loud(Line):
    """Losses so large that their gradients overflow in 16 bits, times what FP16's loss scale begins with."""

    def __init__(self, loudness: float = 100.0, seconds: float = 0.0) -> None:
        super().__init__(seconds=seconds)
        self.loudness = loudness

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return super().loss(outputs, targets) * self.loudness


class Counted(Line):
    """As many points as asked for."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.samples = samples

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        points, targets = super().dataset()
        times = -(-self.samples // len(points))
        return points.repeat(times, 1)[: self.samples], targets.repeat(times, 1)[: self.samples]


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Points that are drawn anew whenever they are asked for, by all three generators; each target fits its point."""

    def __len__(self) -> int:
        return SAMPLES

    @override
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        drawn = [float(torch.randn(())), np.random.normal(), random.gauss(0, 1)]  # noqa: NPY002 (as people do)
        point = torch.tensor(drawn, dtype=torch.float32) + index / SAMPLES
        return point, point.sum(dim=0, keepdim=True)


class WithNoisySamples(Line):
    """Learns from them."""

    @override
    def dataset(self) -> Any:
        return Noisy()


class WithASplit(Line):
    """Chooses at random, when it is made, which samples it trains with. Says so in a file for each rank."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        chosen = [*random.sample(range(SAMPLES), 10), *np.random.permutation(SAMPLES).tolist()]  # noqa: NPY002
        (Path(folder) / f"split-{os.environ['RANK']}").write_text(f"{chosen} {torch.randperm(SAMPLES).tolist()}")


class Struck(Line):
    """After one step, `what` (a weight or a moment) of rank `rank` is another number, once in the life of the job.

    Losses say nothing of it before the next step, and of an infinite second moment they never do.
    """

    def __init__(
        self, *, step: int, marker: str, what: str = "weight", number: str = "nan", rank: int = 0, seconds: float = 0.0
    ) -> None:
        super().__init__(seconds=seconds)
        self.step, self.marker, self.what, self.number, self.rank = step, Path(marker), what, float(number), rank
        self.taken = 0

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        optimizer.register_step_post_hook(self._strike)
        return optimizer

    def _strike(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.taken += 1
        if self.taken != self.step or int(os.environ["RANK"]) != self.rank or self.marker.exists():
            return
        self.marker.touch()
        parameters = optimizer.param_groups[0]["params"]
        struck = [one if self.what == "weight" else optimizer.state[one]["exp_avg_sq"] for one in parameters]
        here = [local(one.detach()) for one in struck]
        next(one for one in reversed(here) if one.numel()).view(-1)[0] = self.number


class Masked(Line):
    """A buffer is a mask of -inf above the diagonal, another one becomes such a mask in the first forward pass."""

    class Model(nn.Module):
        """A line whose inputs are weighed by a softmax under the mask."""

        mask: Tensor
        late: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
            self.register_buffer("late", torch.zeros(3, 3))
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 1)

        @override
        def forward(self, input: Tensor) -> Tensor:
            self.late.copy_(self.mask)
            return self.last(torch.tanh(self.first(input @ self.late.softmax(dim=1))))  # type: ignore[no-any-return]

    @override
    def model(self) -> nn.Module:
        return self.Model()
