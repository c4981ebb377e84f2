"""Models as people have them: parameters without use, tied ones, rows that are seldom touched."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

if TYPE_CHECKING:
    from tests.trainer.small_tasks import Line
else:  # a user's module, beside this one
    from small_tasks import Line


class WithUnused(Line):
    """Of its parameters one is never used, one is not trained; a buffer counts, in whole numbers."""

    @override
    def model(self) -> nn.Module:
        return Unused()


class WithExperts(Line):
    """Each sample goes to one of five experts, so that a small share of a batch leaves some without a sample."""

    @override
    def model(self) -> nn.Module:
        return Experts()


class WithTiedWeights(Line):
    """The same matrix twice."""

    @override
    def model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 1))
        model[2].weight = model[0].weight
        return model


class WithSparseRows(Line):
    """An embedding whose gradients name rows."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(24, 1))

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        words = torch.randint(0, 50, (37, 3), generator=torch.Generator().manual_seed(0))
        return words, words.sum(dim=1, keepdim=True) / 100

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01)


class WithHiddenBuffers(Line):
    """A buffer that no checkpoint has, and a layer with buffers that is used twice."""

    @override
    def model(self) -> nn.Module:
        return HiddenBuffers()


class WithGroups(Line):
    """Parameters in groups by position: `sizes` says how many are in each but the last."""

    def __init__(self, sizes: list[int], seconds: float = 0.0) -> None:
        super().__init__(seconds=seconds)
        self.sizes = sizes

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        ends = [*accumulate(self.sizes), len(parameters)]
        groups = [parameters[first:end] for first, end in pairwise([0, *ends])]
        rates = [0.01 * number for number in range(len(groups))]
        return torch.optim.SGD(
            [{"params": group, "lr": rate} for group, rate in zip(groups, rates, strict=True)], momentum=0.9
        )


class WithFrozenWeight(Line):
    """Of a line's two tensors one is not trained, and the optimizer is told of the other one alone."""

    @override
    def model(self) -> nn.Module:
        model = nn.Linear(3, 1)
        model.weight.requires_grad = False
        return model

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return super().optimizer([parameter for parameter in parameters if parameter.requires_grad])


class WithSparseOptimizer(WithSparseRows):
    """Gradients that name rows, and an optimizer that takes no others."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 1, sparse=True), nn.Flatten(), Total())

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(parameters, lr=0.01)


class WithPhases(Line):
    """Complex weights beside real ones."""

    @override
    def model(self) -> nn.Module:
        return Phases()

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01)


class Breaking(Line):
    """Its last layer raises an error of its own."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(*super().model().children(), Broken())


class Changing(Line):
    """From some step on, rank 1's loss does not depend on the bias any more."""

    @override
    def model(self) -> nn.Module:
        return Forgetful()


class Unused(nn.Module):
    """A line, and what nobody needs."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.line, self.dead = nn.Linear(3, 1), nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @override
    def forward(self, points: Tensor) -> Tensor:
        self.count += 1
        return self.line(points) * self.frozen  # type: ignore[no-any-return]


class HiddenBuffers(nn.Module):
    """A line behind a mask that is not saved and a BatchNorm that has two names."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.line = nn.BatchNorm1d(3), nn.Linear(3, 1)
        self.again = self.first
        self.register_buffer("mask", torch.ones(3), persistent=False)

    @override
    def forward(self, points: Tensor) -> Tensor:
        return self.line(self.again(self.first(points * self.mask)))  # type: ignore[no-any-return]


class Total(nn.Module):
    """The sum of a sample's features."""

    @override
    def forward(self, features: Tensor) -> Tensor:
        return features.sum(dim=1, keepdim=True)


class Phases(nn.Module):
    """The length of a complex sum, and a line."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 1)
        self.waves = nn.Parameter(torch.randn(3, 1, dtype=torch.complex64))

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = (inputs.to(torch.complex64) @ self.waves).abs() + self.line(inputs)
        return outputs


class Broken(nn.Linear):
    """Raises when it is trained."""

    def __init__(self) -> None:
        super().__init__(1, 1)

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            raise MemoryError("a layer is out of memory")
        return super().forward(inputs)


class Experts(nn.Module):
    """The first coordinate chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(3, 1) for _ in range(5))

    @override
    def forward(self, points: Tensor) -> Tensor:
        chosen = ((points[:, 0] + 2).clamp(0, 3.9) / 4 * len(self.experts)).long()
        answers = torch.zeros(len(points), 1)
        for number, expert in enumerate(self.experts):
            if (mine := chosen == number).any():
                answers[mine] = expert(points[mine])
        return answers


class Forgetful(nn.Module):
    """Uses its bias three times on rank 1, and always on the others."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))
        self.times = 0

    @override
    def forward(self, points: Tensor) -> Any:
        self.times += 1
        forgets = torch.distributed.get_rank() == 1 and self.times > 3
        return self.line(points) if forgets else self.line(points) + self.bias


class WithClosure(Line):
    """An optimizer that wants to compute the loss itself, as often as it likes."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(parameters)


class WithBallast(Line):
    """A parameter that is big and of no use: saving it takes a moment."""

    @override
    def model(self) -> nn.Module:
        model = super().model()
        model.register_parameter("ballast", nn.Parameter(torch.zeros(1 << 26), requires_grad=False))
        return model


class WithDoublePhases(Line):
    """A buffer that no file of tensors has a word for."""

    @override
    def model(self) -> nn.Module:
        model = super().model()
        model.register_buffer("table", torch.ones(3, dtype=torch.complex128))
        return model


class WithStranger(Line):
    """A learned weight of the loss, which the model does not have."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD([*parameters, nn.Parameter(torch.ones(5))], lr=0.01)


class Counting(torch.optim.SGD):
    """Steps are shorter and shorter, by a counter that belongs to no parameter."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, lr=0.05)
        self.own = cast("dict[Any, Any]", self.state)
        self.own["counter"] = {"steps": 0}

    @override
    def step(self, closure: Any = None) -> Any:
        self.own["counter"]["steps"] += 1
        for group in self.param_groups:
            group["lr"] = 0.05 / self.own["counter"]["steps"]
        return super().step(closure)


class WithCounter(Line):
    """Trained by such an optimizer."""

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return Counting(parameters)


class WithTransposedWeight(Line):
    """A weight whose columns lie in memory one after the other."""

    @override
    def model(self) -> nn.Module:
        layer = nn.Linear(3, 6)
        layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t())
        return nn.Sequential(layer, nn.Linear(6, 1))


class WithWholeNumbers(Line):
    """Parameters that are whole numbers, as a quantized model's, and some that there are none of."""

    @override
    def model(self) -> nn.Module:
        model = super().model()
        model.register_parameter("places", nn.Parameter(torch.arange(3), requires_grad=False))
        model.register_parameter("none", nn.Parameter(torch.zeros(0, 4)))
        return model


class WithReplacedBuffer(Line):
    """A running figure as people write it: each forward pass puts a new tensor in the place of the buffer."""

    @override
    def model(self) -> nn.Module:
        return Replacing()


class WithExtraState(Line):
    """A module that keeps something which is no tensor of its own; `words` is no tensor at all."""

    def __init__(self, words: bool = False) -> None:
        super().__init__()
        self.words = words

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), Remembering(words=self.words))


class WithRoutes(Line):
    """Whole batches go to one of two equal experts, so that ranks give gradients to different parameters."""

    @override
    def model(self) -> nn.Module:
        return Routes()


class Replacing(nn.Module):
    """See `WithReplacedBuffer`."""

    share: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_buffer("share", torch.zeros(1))
        self.register_buffer("mean", torch.zeros(3))

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.share = self.share * 0.9 + 0.1
            self.mean = self.mean * 0.9 + inputs.mean(dim=0)
        return cast("Tensor", self.linear(inputs) * self.share)


class Remembering(nn.Linear):
    """See `WithExtraState`."""

    def __init__(self, *, words: bool) -> None:
        super().__init__(8, 1)
        self.words, self.calls = words, 0

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(inputs)

    @override
    def get_extra_state(self) -> Any:
        return {"calls": self.calls} if self.words else torch.tensor([self.calls])

    @override
    def set_extra_state(self, state: Any) -> None:
        self.calls = int(state)


class Routes(nn.Module):
    """See `WithRoutes`."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(3, 1) for _ in range(2))

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        return cast("Tensor", self.experts[int(inputs.sum() > 0)](inputs))
