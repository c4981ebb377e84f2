"""Cut a model into pipeline stages: runs of consecutive layers with about the same number of parameters each.

The most that any stage holds is as small as it can be: the classic linear partition, solved by dynamic programming
(Skiena, "The Algorithm Design Manual", section 10.7). A layer without parameters (an activation, a dropout) stays with
the layer before it, so that no stage is without anything to train.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from trainmaster_trainer.errors import ConfigurationError

Layer = tuple[str, nn.Module]


class Stage(nn.Module):
    """Stage is a run of layers. Several inputs, as from a stage whose last layer gave a tuple, are that tuple again."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer for _, layer in layers)

    @override
    def forward(self, *inputs: Any) -> Any:
        value = inputs[0] if len(inputs) == 1 else inputs
        for layer in self.layers:
            value = layer(value)
        if isinstance(value, Tensor):
            return value.contiguous()  # it may be about to travel
        return tuple(part.contiguous() for part in value)


def cut(model: nn.Module, layers: Sequence[Layer], stages: int) -> list[list[Layer]]:
    """Return the layers of each stage.

    Raises:
        ConfigurationError: there are more stages than layers with parameters, or the layers are not the model.
    """
    _check_layers(model, layers)
    blocks = blocks_of(layers)
    if stages > len(blocks):
        names = ", ".join(block[0][0] for block in blocks)
        most = len(blocks)
        numbers = "1" if most == 1 else f"2 to {most}" if most > 2 else "2"  # noqa: PLR2004
        raise ConfigurationError(
            f"spec.strategy: {stages} pipeline stages, one per rank, are more than the model can be cut into: it has "
            f"{len(blocks)} layers with parameters ({names}). Use {numbers} stages: lower "
            "spec.workers.replicas (or gpus, or mesh.pipeline), or give the model more layers."
        )
    runs = [list(itertools.chain(*blocks[begin:end])) for begin, end in bounds(blocks, stages)]
    _check_nothing_is_shared(runs)
    return runs


def bounds(blocks: Sequence[Sequence[Layer]], stages: int) -> list[tuple[int, int]]:
    """Return the first block of each stage, and the first block after it: the cut that `cut` makes."""
    ends = balance([sum(parameters(layer) for _, layer in block) for block in blocks], stages)
    return list(itertools.pairwise([0, *ends]))


def balance(costs: Sequence[int], parts: int) -> list[int]:
    """Return where each of `parts` runs of `costs` ends, so that the highest cost is lowest. No run is empty."""
    sums = [0, *itertools.accumulate(costs)]

    @cache
    def best(count: int, runs: int) -> tuple[int, int]:
        """Return the highest cost of `runs` runs over the first `count` costs, and where the last run begins."""
        if runs == 1:
            return sums[count], 0
        choices = range(runs - 1, count)
        return min((max(best(begin, runs - 1)[0], sums[count] - sums[begin]), begin) for begin in choices)

    ends = [len(costs)]
    for runs in range(parts, 1, -1):
        ends.append(best(ends[-1], runs)[1])
    return ends[::-1]


def parameters(layer: nn.Module) -> int:
    """Return the number of trainable numbers in a layer."""
    return sum(parameter.numel() for parameter in layer.parameters())


def blocks_of(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Return groups of layers between which the model may be cut."""
    blocks: list[list[Layer]] = [[]]
    for layer in layers:
        if parameters(layer[1]) and any(parameters(before) for _, before in blocks[-1]):
            blocks.append([])
        blocks[-1].append(layer)
    return blocks


def _check_layers(model: nn.Module, layers: Sequence[Layer]) -> None:
    """Check that every parameter is in a layer, and that layers have no parameters or buffers of their own."""
    inside = {id(module) for _, layer in layers for module in layer.modules()}
    for prefix, module in model.named_modules():
        if id(module) not in inside and any(True for _ in module.parameters(recurse=False)):
            raise ConfigurationError(
                f"spec.training.task: its model_layers() leaves out {prefix or 'the model itself'}, which has "
                "parameters. Every parameter must be in exactly one layer."
            )
    known = {id(module) for module in model.modules()}
    for name, layer in layers:
        for module in layer.modules():
            if id(module) not in known and [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                raise ConfigurationError(
                    f"spec.training.task: its model_layers() has {name}, with parameters or buffers that the model "
                    "does not have. Layers must be made of the model's own modules."
                )


def _check_nothing_is_shared(runs: Sequence[Sequence[Layer]]) -> None:
    owner: dict[nn.Module | Tensor, tuple[int, str]] = {}
    for stage, run in enumerate(runs):
        for name, layer in run:
            for held in _held_once(layer):
                first, other = owner.setdefault(held, (stage, name))
                if first != stage:
                    raise ConfigurationError(
                        f"spec.training.task: the layers {other} and {name} share a parameter or a buffer and would be "
                        "on different stages. Untie them, use fewer stages, or choose FullySharded."
                    )


def _held_once(layer: nn.Module) -> Iterator[nn.Module | Tensor]:
    """Yield what only one stage may have, as each would change its own: parameters, and a layer with buffers."""
    yield from layer.parameters()
    if any(True for _ in layer.buffers()):
        yield layer
