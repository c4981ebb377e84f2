"""A server's fused steps: the same parameters as by the task's own way, whatever comes and stays away."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from trainmaster_trainer.strategies.parameter_server.fused import Fused

Make = Callable[[Sequence[nn.Parameter]], Optimizer]
SHAPES = ((3, 4), (5,), (2, 2))


class Stubborn(SGD):
    """One that steps in its own way."""


def train(make: Make, absent: Sequence[set[int]], *, fuse: bool) -> list[Tensor]:
    """The parameters after a step for each of `absent`, in which these parameters have no gradient."""
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    optimizer = make(parameters)
    fused = Fused(optimizer)
    before = [dict(group) for group in optimizer.param_groups]
    for gone in absent:
        for index, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if index in gone else gradient
        if fuse:
            with fused.steps():
                optimizer.step()
        else:
            optimizer.step()
    assert [dict(group) for group in optimizer.param_groups] == before, "checkpoints have the task's own settings"
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: SGD(parameters, lr=0.1),
        lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda parameters: SGD([{"params": parameters[:1], "momentum": 0.0}, {"params": parameters[1:]}], 0.1, 0.5),
        lambda parameters: Adam(parameters, lr=0.1, amsgrad=True),
        lambda parameters: AdamW(parameters, lr=0.1),
        lambda parameters: RMSprop(parameters, lr=0.1),
        lambda parameters: Adam(parameters, lr=torch.tensor(0.1)),
    ],
)
@pytest.mark.parametrize(
    "absent",
    [
        [set(), set(), set()],
        [{0}, {1}, set(), {0, 1, 2}, set()],  # torch's fused SGD alone breaks here
        [{2}, {2}, {2}],
        [{0, 1, 2}, set()],
    ],
)
def test_steps_are_the_same(make: Make, absent: Sequence[set[int]]) -> None:
    for fused, plain in zip(train(make, absent, fuse=True), train(make, absent, fuse=False), strict=True):
        torch.testing.assert_close(fused, plain)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda parameters: SGD(parameters, lr=0.1), True),
        (lambda parameters: AdamW(parameters, lr=0.1), True),
        (lambda parameters: Stubborn(parameters, lr=0.1), False),
        (lambda parameters: SGD(parameters, lr=0.1, foreach=False), False),
        (lambda parameters: SGD(parameters, lr=0.1, fused=False), False),
        (lambda parameters: RMSprop(parameters, lr=0.1), False),
    ],
)
def test_a_choice_of_the_task_counts(make: Make, expected: bool) -> None:
    optimizer = make([nn.Parameter(torch.zeros(2))])
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(optimizer.param_groups[0].get("fused") is True))
    with Fused(optimizer).steps():
        optimizer.step()
    assert seen == [expected]
    assert not optimizer.param_groups[0].get("fused")
