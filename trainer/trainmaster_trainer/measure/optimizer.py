"""Find what a task's optimizer keeps beside the parameters, by a step of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainmaster_trainer.answers import make_optimizer
from trainmaster_trainer.measure.layers import size_of
from trainmaster_trainer.strategies.used_parameters import sparse_layers
from trainmaster_trainer.task import Task


def optimizer_bytes(task: Task, model: nn.Module) -> int | None:
    """Return the bytes kept for all trained parameters of the model, which this changes; None where a step fails.

    The optimizer is the one that trains: groups and what it keeps may depend on a parameter's shape. It takes a step
    with one gradient at a time, and one for parameters that are alike, so that a model which just fits into memory can
    be looked at.
    """
    optimizer = make_optimizer(task, list(model.parameters()))
    sparse = {layer.weight for _, layer in sparse_layers(model)}
    alike: dict[tuple[object, ...], int] = {}
    total = 0
    for number, group in enumerate(optimizer.param_groups):
        for parameter in (one for one in group["params"] if one.requires_grad):
            kind = (number, parameter.shape, parameter.dtype, parameter in sparse)
            try:
                alike[kind] = alike[kind] if kind in alike else _kept(optimizer, parameter, parameter in sparse)
            except Exception:  # noqa: BLE001 (it may need a GPU, or all gradients at once: training is another matter)
                return None
            total += alike[kind]
    return total


def _kept(optimizer: Optimizer, parameter: nn.Parameter, sparse: bool) -> int:
    """Return the bytes that the optimizer keeps for one parameter after a step in which nothing else has a gradient."""
    parameter.grad = _a_row(parameter) if sparse else torch.ones_like(parameter)
    optimizer.step()
    parameter.grad = None
    return size_of(list(optimizer.state.pop(parameter, {}).values()))


def _a_row(parameter: nn.Parameter) -> Tensor:
    values = torch.ones_like(parameter[:1])
    places = torch.zeros(1, 1, dtype=torch.long)
    return torch.sparse_coo_tensor(places, values, parameter.shape, check_invariants=True)
