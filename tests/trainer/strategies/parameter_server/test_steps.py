"""A server's steps of all parameters as one: the same as by the task's own optimizer, whatever comes and stays away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import ConstantLR
from trainmaster_trainer.flat_buffers import FlatLayout, adopt
from trainmaster_trainer.strategies.parameter_server.steps import Steps

Make = Callable[[list[nn.Parameter]], Optimizer]
SHAPES: dict[str, tuple[int, ...]] = {"b": (3, 4), "a": (5,), "d": (), "c": (17,)}  # not in the layout's order
NOBODY: set[str] = set()


class Server:
    """Parameters in one buffer, and how they are stepped. `alone`: by the optimizer itself."""

    def __init__(self, make: Make, *, alone: bool = False) -> None:
        self.draws = torch.Generator().manual_seed(0)
        self.parameters = {name: nn.Parameter(self.random(shape)) for name, shape in SHAPES.items()}
        self.layout = FlatLayout.for_tensors(self.parameters)
        flat = adopt(self.parameters, self.layout)
        self.optimizer = make(list(self.parameters.values()))
        self.steps = None if alone else Steps(self.optimizer, self.parameters, self.layout, flat)

    def random(self, shape: tuple[int, ...]) -> Tensor:
        """Numbers that every server draws alike."""
        return torch.randn(shape, generator=self.draws)

    def step(self, absent: set[str]) -> None:
        """One, in which these parameters have no gradient."""
        gradients = {name: self.random(shape) for name, shape in SHAPES.items()}
        if self.steps:
            self.steps.take(self.layout.pack(gradients), absent, lambda optimizer: optimizer.step())
            return
        for name, parameter in self.parameters.items():
            parameter.grad = None if name in absent else gradients[name]
        self.optimizer.step()

    def start_anew(self) -> None:
        """As after a restart: the state is what a checkpoint has of it."""
        for state in self.optimizer.state.values():
            state.update({key: value.clone() for key, value in state.items()})
        if self.steps:
            self.steps.forget()

    @property
    def was_stepped_as_one(self) -> bool:
        """Whether nobody has given the parameters a gradient each."""
        return all(parameter.grad is None for parameter in self.parameters.values())


def in_groups(parameters: list[nn.Parameter]) -> Optimizer:
    groups: list[dict[str, Any]] = [{"params": parameters[:1], "momentum": 0.0}, {"params": parameters[1:]}]
    return SGD(groups, lr=0.1, momentum=0.5)


MAKES: dict[str, Make] = {
    "plain": lambda parameters: SGD(parameters, lr=0.1),
    "momentum": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "groups": in_groups,
    "Adam": lambda parameters: Adam(parameters, lr=0.1, amsgrad=True, maximize=True),
    "AdamW": lambda parameters: AdamW(parameters, lr=0.1, betas=(0.5, 0.9)),
    "RMSprop": lambda parameters: RMSprop(parameters, lr=0.1),
    "some": lambda parameters: AdamW(parameters[:-1], lr=0.1),
}
ABSENT = [
    [NOBODY] * 6,
    [{"a"}, {"b"}, NOBODY, {*SHAPES}, NOBODY, NOBODY],
    [{"c"}, {"c"}, {"c"}, NOBODY, NOBODY, NOBODY],
    [NOBODY, NOBODY, {"a"}, NOBODY, {*SHAPES} - {"a"}, NOBODY],  # in the end all have the same number of steps again
]


@pytest.mark.parametrize("absent", ABSENT)
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_steps_are_the_same_and_so_is_what_a_checkpoint_would_have(make: Make, absent: Sequence[set[str]]) -> None:
    served, alone = Server(make), Server(make, alone=True)
    for gone in absent:
        served.step(gone)
        alone.step(gone)
        torch.testing.assert_close(served.optimizer.state_dict(), alone.optimizer.state_dict())
        for name, parameter in alone.parameters.items():
            torch.testing.assert_close(served.parameters[name], parameter)


@pytest.mark.parametrize("absent", ABSENT)
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_a_restart_in_the_middle_changes_no_bit(make: Make, absent: Sequence[set[str]]) -> None:
    kept, restarted = Server(make), Server(make)
    for gone in absent:
        kept.step(gone)
        restarted.start_anew()
        restarted.step(gone)
        for name, parameter in kept.parameters.items():
            assert torch.equal(restarted.parameters[name], parameter)


@pytest.mark.parametrize("name", ["plain", "momentum", "Adam", "AdamW"])
def test_parameters_with_the_same_past_are_stepped_as_one(name: str) -> None:
    server = Server(MAKES[name])
    seen = []
    for gone in ABSENT[3]:
        server.step(gone)
        seen.append(server.was_stepped_as_one)
    counts_steps = name.startswith("Adam")
    assert seen == [True, True, False, not counts_steps, False, True]


def watched(parameters: list[nn.Parameter]) -> Optimizer:
    optimizer = SGD(parameters, lr=0.1)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


def scheduled(parameters: list[nn.Parameter]) -> Optimizer:
    optimizer = SGD(parameters, lr=0.1)
    ConstantLR(optimizer)
    return optimizer


class Stubborn(SGD):
    """One that may step in its own way."""


@pytest.mark.parametrize(
    "make",
    [
        watched,
        scheduled,
        MAKES["groups"],
        MAKES["RMSprop"],
        MAKES["some"],
        lambda parameters: Stubborn(parameters, lr=0.1),
        lambda parameters: SGD(parameters, lr=0.1, fused=False),
        lambda parameters: Adam(parameters, lr=torch.tensor(0.1)),
    ],
)
def test_what_the_task_has_its_own_way_with_is_left_alone(make: Make) -> None:
    server = Server(make)
    server.step(NOBODY)
    assert not server.was_stepped_as_one


def test_rates_that_change_count() -> None:
    served, alone = Server(MAKES["momentum"]), Server(MAKES["momentum"], alone=True)
    for rate in (0.1, 0.01, 1.0):
        for server in (served, alone):
            server.optimizer.param_groups[0]["lr"] = rate
            server.step(NOBODY)
    torch.testing.assert_close(served.parameters["b"], alone.parameters["b"])
