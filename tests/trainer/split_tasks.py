"""Tasks for strategies that split a model. Reached by `workingDirectory: tests/trainer`."""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle
from trainmaster_trainer.checkpoint.pieces import local
from trainmaster_trainer.task import Task
from trainmaster_trainer.tasks.digits import Digits
from typing_extensions import override


class WeighedDigits(Digits):
    """Says of each rank, after training, how many bytes of parameters and moments it holds: `FOLDER/bytes-RANK`."""

    def __init__(self, folder: str, **others: Any) -> None:
        super().__init__(**others)
        self.folder = Path(folder)

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        self.made = super().optimizer(parameters)
        return self.made

    @override
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        held = [parameter for group in self.made.param_groups for parameter in group["params"]]
        moments = [value for state in self.made.state.values() for value in state.values() if value.dim()]
        assert {id(one) for one in held} == {id(one) for one in model.parameters()}
        counts = {"parameters": _bytes(held), "moments": _bytes(moments)}
        (self.folder / f"bytes-{os.environ['RANK']}").write_text(json.dumps(counts))
        return super().evaluate(model)


def _bytes(tensors: list[Any]) -> int:
    return sum(local(tensor).untyped_storage().nbytes() for tensor in tensors)


class TwoGroups(Digits):
    """Two groups of parameters with settings of their own; with `noise` also dropout, buffers and a schedule."""

    def __init__(self, optimizer: str = "AdamW", noise: bool = True, seconds: float = 0.0, **others: Any) -> None:
        super().__init__(**{"hidden": 24, "learning_rate": 0.01, **others})
        self.kind, self.noise, self.seconds = optimizer, noise, seconds

    @override
    def loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        time.sleep(self.seconds)
        return super().loss(outputs, targets)

    @override
    def model(self) -> nn.Module:
        wide = self.hidden
        noise = [nn.BatchNorm1d(wide), nn.Dropout(0.1)] if self.noise else []
        return nn.Sequential(
            nn.Linear(64, wide), *noise, nn.ReLU(), nn.Linear(wide, wide), nn.Tanh(), nn.Linear(wide, 10)
        )

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        weights = [parameter for parameter in parameters if parameter.dim() > 1]
        others = [parameter for parameter in parameters if parameter.dim() <= 1]
        kind = getattr(torch.optim, self.kind)
        rate = self.learning_rate
        made: torch.optim.Optimizer = kind(
            [{"params": weights, "weight_decay": 0.1}, {"params": others, "lr": 2 * rate}], lr=rate
        )
        return made

    @override
    def tensor_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:
        """Outputs are brought together after every layer, because BatchNorm wants all of them."""
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        return {name: ColwiseParallel(output_layouts=Replicate()) for name in linear[:2]}

    @override
    def learning_rate_factor(self, fraction: float) -> float:
        return 1.0 - 0.5 * fraction if self.noise else 1.0


class TiedLayers(TwoGroups):
    """Two layers of one matrix, both of which are to be split."""

    def __init__(self) -> None:
        super().__init__(noise=False, hidden=64)

    @override
    def model(self) -> nn.Module:
        model = super().model()
        assert isinstance(model, nn.Sequential)
        model[2].weight = model[0].weight
        return model


class WithoutPickle(Digits):
    """Lets nobody send objects: torch pickles them. Gradients that are wrong by a factor are seen, as under no Adam."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    @override
    def model(self) -> nn.Module:
        for name in ("_object_to_tensor", "_tensor_to_object"):
            assert hasattr(dist.distributed_c10d, name)
            setattr(dist.distributed_c10d, name, _refuse)
        return super().model()


def _refuse(*_: Any) -> None:
    raise AssertionError("an object was about to be pickled")


class Opaque(Task):
    """Does not say how its model can be split."""

    @override
    def model(self) -> nn.Module:
        return _Plain()

    @override
    def dataset(self) -> tuple[torch.Tensor, torch.Tensor]:
        points = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
        return points, points.sum(dim=1, keepdim=True)

    @override
    def loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        return nn.functional.mse_loss(outputs, targets)

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01)


class _Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(3, 1)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.only(x)
        return result


class Scalar(Opaque):
    """Learns a number that has no dimension."""

    @override
    def model(self) -> nn.Module:
        model = _Plain()
        model.scale = nn.Parameter(torch.tensor(1.0))
        return model


class Shortcut(Opaque):
    """Its forward adds what came in to what the layers make of it, which its layers do not say."""

    @override
    def model(self) -> nn.Module:
        return _Residual()

    @override
    def model_layers(self, model: nn.Module) -> list[tuple[str, nn.Module]]:
        return list(model.named_children())


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 1)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(x + self.first(x))
        return result


class Factored(Digits):
    """Its optimizer takes the norms of rows in place, which torch cannot do where a rank has some of them."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adafactor(parameters)
