"""Look at the layers of a task's model as Pipeline would cut it: their number, times and traffic.

A model that cannot be cut (`Task.model_layers` says how) has no layers here, and no pipeline is advised for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.strategies.stages import Layer, blocks_of, bounds
from trainmaster_trainer.structure import each_tensor, leaves
from trainmaster_trainer.task import Task

_TRIES = 3
_MOST_STAGES = 64


def layers_of(task: Task, model: nn.Module) -> list[Layer]:
    """Return the chain of layers; an empty list where the task has none."""
    try:
        return task.model_layers(model)
    except ConfigurationError:
        return []


def size_of(value: Any) -> int:
    """Return the bytes of a tensor, or of all tensors in lists, tuples and dicts."""
    return sum(tensor.numel() * tensor.element_size() for tensor in leaves(value))


def boundary_bytes(layers: Sequence[Layer], inputs: Any) -> list[int]:
    """Return the bytes that flow out of each block but the last."""
    sizes = []
    with torch.no_grad():
        for block in blocks_of(layers)[:-1] if layers else []:
            inputs = _through(block, inputs)
            sizes.append(size_of(inputs))
    return sizes


def slowest_stages(layers: Sequence[Layer], inputs: Any) -> tuple[float, ...]:
    """Return the share of all computation that the slowest stage has, with one stage, with two, and so on."""
    blocks = blocks_of(layers) if layers else []
    seconds = _seconds(blocks, inputs)
    shares = []
    for stages in range(1, min(len(blocks), _MOST_STAGES) + 1):
        parts = [sum(seconds[begin:end]) for begin, end in bounds(blocks, stages)]
        shares.append(max(parts) / sum(parts))
    return tuple(shares)


def _seconds(blocks: Sequence[Sequence[Layer]], value: Any) -> list[float]:
    """Return the seconds forwards and backwards through each block: the fastest of some tries."""
    taken = []
    for block in blocks:
        tries = []
        for _ in range(_TRIES):
            given = each_tensor(value, _as_input)
            began = time.perf_counter()
            out = _through(block, given)
            torch.autograd.backward([leaf.sum() for leaf in leaves(out) if leaf.requires_grad])
            if any(leaf.is_cuda for leaf in leaves(out)):
                torch.cuda.synchronize()
            tries.append(time.perf_counter() - began)
        taken.append(min(tries))
        value = each_tensor(out, Tensor.detach)
    return taken


def _as_input(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def _through(block: Sequence[Layer], value: Any) -> Any:
    for _, layer in block:
        value = layer(value)
    return value
