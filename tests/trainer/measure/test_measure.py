"""What `explain` and `advise` are told of a task's model: sizes, layers as Pipeline would cut them, the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, AdamW, Muon, Optimizer, SparseAdam
from trainmaster_trainer.measure.layers import slowest_stages
from trainmaster_trainer.measure.model_sizes import describe
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.task import Task, load_task
from trainmaster_trainer.tasks.text import Text
from typing_extensions import override

from tests.trainer.ranks import HERE

_LAYERS, _WIDTH, _CONTEXT = 3, 16, 8


class Whole(nn.Module):
    """No nn.Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(4, 2)

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        return self.inside(inputs)  # type: ignore[no-any-return]


class Uncut(Task):
    """Says nothing of how its model can be cut."""

    @override
    def model(self) -> nn.Module:
        return Whole()

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        return torch.ones(8, 4), torch.ones(8, 2)

    @override
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs, targets)

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)


def test_layers_that_keep_running_means_are_counted() -> None:
    class Normed(Uncut):
        @override
        def model(self) -> nn.Module:
            kept = nn.BatchNorm1d(2)
            return nn.Sequential(nn.Linear(4, 2), kept, kept, nn.BatchNorm1d(2, track_running_stats=False))

    assert describe(Normed(), Numerics()).batch_norms == 1


def test_layers_and_what_flows_between_them_are_those_of_the_pipeline() -> None:
    """The text model says itself how it is cut: embedding, blocks, head; each hands on a vector per character."""
    facts = describe(Text(layers=_LAYERS, width=_WIDTH, heads=2, context=_CONTEXT, bytes=20_000), Numerics())
    assert facts.layers == _LAYERS + 2
    assert facts.boundary_bytes == _CONTEXT * _WIDTH * 4


def test_a_model_that_nobody_can_cut_has_one_layer() -> None:
    facts = describe(Uncut(), Numerics())
    assert (facts.layers, facts.boundary_bytes) == (1, None)


def test_the_share_of_the_slowest_stage_falls_with_the_number_of_stages() -> None:
    """One stage has all; with as many stages as layers the slowest has more than its even part, never less."""
    layers = [(str(number), nn.Linear(8, 8)) for number in range(4)]
    shares = slowest_stages(layers, torch.ones(4, 8))
    assert shares[0] == 1
    assert all(1 / (number + 1) <= share <= 1 for number, share in enumerate(shares))
    assert len(shares) == len(layers)


class Pooled(Uncut):
    """One pool, twice."""

    @override
    def model(self) -> nn.Module:
        pool = nn.MaxPool1d(2)
        return nn.Sequential(nn.Linear(4, 8), pool, pool, nn.Linear(2, 2))


def test_a_layer_that_computes_twice_is_looked_at_twice() -> None:
    facts = describe(Pooled(), Numerics())
    assert (facts.layers, facts.boundary_bytes) == (2, 2 * 4)


def test_texts_are_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    facts = describe(load_task("chain_tasks:WithTexts", {}), Numerics())
    assert (facts.samples, facts.sample_bytes) == (10, 8)  # a target of 64 bits


Make = Callable[[list[nn.Parameter]], Optimizer]


class Optimized(Uncut):
    """Has an optimizer of a test's choice."""

    def __init__(self, make: Make) -> None:
        self.make = make

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> Optimizer:
        return self.make(parameters)


class Together(SGD):
    """Wants all gradients at once."""

    @override
    def step(self, closure: Any = None) -> Any:
        sum(float(parameter.grad.sum()) for group in self.param_groups for parameter in group["params"])


WEIGHT, BIAS, COUNT = 4 * 2 * 4, 2 * 4, 4  # bytes: of the parameters of `Uncut`, and of a step's number


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda found: SGD(found, lr=0.1), 0),
        (lambda found: SGD(found, lr=0.1, momentum=0.9), WEIGHT + BIAS),
        (AdamW, 2 * (WEIGHT + BIAS + COUNT)),
        (Adagrad, WEIGHT + BIAS + 2 * COUNT),
        (lambda found: Muon([one for one in found if one.dim() > 1]), WEIGHT),
        (lambda found: AdamW([found[-2]]), 2 * WEIGHT + COUNT),
        (lambda found: Together(found, lr=0.1), None),
    ],
)
def test_the_optimizer_is_the_one_that_trains(make: Make, kept: int | None) -> None:
    assert describe(Optimized(make), Numerics()).optimizer_bytes == kept


class Table(Optimized):
    """An embedding whose gradients name rows, beside frozen numbers."""

    @override
    def model(self) -> nn.Module:
        model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(24, 2))
        model[2].requires_grad_(requires_grad=False)
        return model

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        return torch.zeros(8, 3, dtype=torch.long), torch.ones(8, 2)


def test_gradients_are_as_the_layers_make_them_and_of_what_is_trained() -> None:
    facts = describe(Table(lambda found: SparseAdam(found[:1])), Numerics())
    assert facts.optimizer_bytes == 2 * 50 * 8 * 4
    assert facts.trained_bytes == 50 * 8 * 4
    assert facts.parameter_bytes == (50 * 8 + 24 * 2 + 2) * 4
