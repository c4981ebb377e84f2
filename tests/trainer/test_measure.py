"""What `explain` and `advise` are told of a task's model: sizes, and the layers as Pipeline would cut them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from trainmaster_trainer.measure.layers import slowest_stages
from trainmaster_trainer.measure.model import describe
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.task import Task
from trainmaster_trainer.tasks.text import Text
from typing_extensions import override

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
