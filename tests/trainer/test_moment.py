"""A look at a model leaves no trace."""

from typing import Any

import torch
from torch import Tensor, nn
from trainmaster_trainer.model_guard import ModelGuard, without_trace
from typing_extensions import override


class Moving(nn.Module):
    """All that a forward pass may change."""

    mean: Tensor
    replaced: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.calls = {"forward": 0}
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("replaced", torch.zeros(1), persistent=False)

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        self.calls["forward"] += 1
        self.mean += inputs
        self.replaced = self.replaced + 1
        return inputs + torch.rand(2)

    @override
    def get_extra_state(self) -> Any:
        return self.calls

    @override
    def set_extra_state(self, state: Any) -> None:
        self.calls = state


def traces(model: Moving) -> list[Any]:
    """What can be seen of it, the next random number included; that is drawn from a copy."""
    with torch.random.fork_rng():
        following = torch.rand(1).item()
    return [dict(model.calls), model.mean.tolist(), model.replaced.tolist(), following, model.training]


def test_everything_is_as_it_was() -> None:
    model = Moving()
    model(torch.ones(2))
    before, moment = traces(model), ModelGuard(model)
    for _ in range(2):
        model(torch.ones(2))
    after = traces(model)
    assert all(one != other for one, other in zip(before[:4], after[:4], strict=True)), "there is something to put back"
    moment.come_back()
    assert traces(model) == before


def test_a_look_in_eval_mode() -> None:
    model = Moving()
    before = traces(model)
    with without_trace(model):
        assert not model.training
        model(torch.ones(2))
    assert traces(model) == before


def test_what_is_frozen_within_gets_gradients_again() -> None:
    """As evaluations freeze a model to be quicker; training would go on without some of it, and nobody would know."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(requires_grad=False))
    with without_trace(model):
        model.requires_grad_(requires_grad=False)
    assert [one.requires_grad for one in model.parameters()] == [True, True, False, False]
