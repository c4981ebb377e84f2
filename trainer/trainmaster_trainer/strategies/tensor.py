"""Tensor: every rank computes a part of each layer, on the same samples.

It is horizontal model parallelism after Shoeybi et al., "Megatron-LM" (2019), on torch's DTensor. Of two layers in a
row, the first is split by columns (each rank computes some of its outputs) and the second by rows (each rank has the
matching inputs), so only the second one's sums must be added up: one all-reduce per pair forwards, and one backwards.
Which layers those are is the task's knowledge: `Task.tensor_plan`.

Memory per rank: parameters, gradients and moments of the planned layers, 1/N; what no pattern names is on every rank.
Bytes per step and rank: per pair of layers about 4A(N-1)/N, where A are the bytes of an activation: much, in every
layer, so the ranks should be devices of one machine, whose CPUs exchange through its memory
(`collectives/host_group.py`). Ranks draw the same random numbers, so dropout is the same on what they hold alike;
inside a split layer, units in the same place of different ranks are dropped together.

The loss is that of OneDevice, step by step, but for the order of float32 sums (1e-5 relative).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from typing_extensions import override

from trainmaster_trainer.errors import ConfigurationError, near
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.axes import Axes
from trainmaster_trainer.strategies.partitioned import Partitioned
from trainmaster_trainer.strategies.strategy import check_options
from trainmaster_trainer.task import Task

Planned = tuple[str, nn.Module, ParallelStyle]


class Tensor(Partitioned):
    """Tensor spreads each planned layer over all ranks."""

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("Tensor", options, {})
        self.build(task, group, Axes(tensor=group.world_size))

    @override
    def divide(self, model: nn.Module) -> nn.Module:
        split_layers(plan_of(self.task, model, self.axes.tensor), model, self.mesh["tensor"])
        return model


def plan_of(task: Task, model: nn.Module, ranks: int) -> list[Planned]:
    """Return the modules of the whole model that are split among `ranks` ranks, and how.

    Raises:
        ConfigurationError: there is no plan, a pattern fits nothing, a layer is tied to another one, or something
            cannot be shared out evenly.
    """
    modules = dict(model.named_modules())
    planned: dict[str, Planned] = {}
    for pattern, style in task.tensor_plan(model).items():
        found = [name for name in modules if fnmatchcase(name, pattern)]
        if not found:
            raise ConfigurationError(
                f"spec.training.task: its tensor_plan() names {pattern!r}, and the model has no such module."
                f"{near(pattern, modules)}"
            )
        for name in found:
            planned.setdefault(name, (name, modules[name], style))
    _check_tied(model, list(planned.values()))
    _check_sizes(task, list(planned.values()), ranks)
    return list(planned.values())


def split_layers(plan: list[Planned], part: nn.Module, mesh: DeviceMesh) -> None:
    """Split the planned modules that are in this part of the model."""
    inside = {id(module) for module in part.modules()}
    for _, module, style in plan:
        if id(module) in inside:
            parallelize_module(module, mesh, style)


def _check_tied(model: nn.Module, plan: list[Planned]) -> None:
    """Check that no split layer shares parameters with another: it gets its own, so they would no longer be tied."""
    for name, module, _ in plan:
        inside = set(module.modules())
        own = set(module.parameters())
        for other, holder in model.named_modules():
            if holder not in inside and not own.isdisjoint(holder.parameters(recurse=False)):
                raise ConfigurationError(
                    f"spec.training.task: its tensor_plan() splits {name}, which shares a parameter with {other}, and "
                    "would untie them. Leave both out of the plan, or give each its own."
                )


def _check_sizes(task: Task, plan: list[Planned], ranks: int) -> None:
    sizes = [*_even_sizes(plan), *task.tensor_units().items()]
    odd = [(name, size) for name, size in sizes if size % ranks]
    if odd:
        fitting = math.gcd(*(size for _, size in sizes))
        numbers = [str(number) for number in range(1, fitting + 1) if fitting % number == 0]
        name, size = odd[0]
        raise ConfigurationError(
            f"spec.strategy: {ranks} tensor ranks cannot share out the {size} {name} evenly. Numbers that fit this "
            f"model: {', '.join(numbers)}. Change spec.workers.replicas (or gpus, or mesh.tensor), or the model's "
            "sizes in spec.training.arguments."
        )


def _even_sizes(plan: list[Planned]) -> Iterator[tuple[str, int]]:
    """Yield the name and size of what linear layers exchange in parts, which must be even on all ranks."""
    for name, module, style in plan:
        if not isinstance(module, nn.Linear):
            continue
        if isinstance(style, ColwiseParallel) and _is_split(style.output_layouts):
            yield f"outputs of {name}", module.out_features
        if isinstance(style, RowwiseParallel) and _is_split(style.input_layouts):
            yield f"inputs of {name}", module.in_features


def _is_split(layouts: tuple[Any, ...]) -> bool:
    return any(isinstance(layout, Shard) for layout in layouts)
