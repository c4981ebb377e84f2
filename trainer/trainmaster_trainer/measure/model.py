"""Sizes of a task's model, found by making it and sending two samples through."""

from __future__ import annotations

from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from trainmaster.wire.measured import ModelFacts

from trainmaster_trainer.data import Batches, Share
from trainmaster_trainer.task import Task

_TRIED_SAMPLES = 2
_PROBE = 64  # numbers in the parameter that shows what the optimizer keeps


def describe(task: Task) -> ModelFacts:
    """The facts. The model is made once, on the CPU."""
    model = task.model()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    samples = Batches(task.dataset(), _TRIED_SAMPLES, 1, 0, torch.device("cpu"))
    batch = samples.take(1, Share(0, 1))
    kept, flowing = _try(task, model, batch.inputs, batch.targets)
    return ModelFacts(
        parameters=sum(parameter.numel() for parameter in trained),
        parameter_bytes=sum(size_of(parameter) for parameter in model.parameters()),
        buffer_bytes=sum(size_of(buffer) for buffer in model.buffers()),
        optimizer_bytes=_optimizer_bytes(task, trained),
        largest_layer_bytes=max((_own_bytes(module) for module in model.modules()), default=0),
        layers=count_layers(model),
        samples=samples.count,
        sample_bytes=(size_of(batch.inputs) + size_of(batch.targets)) // _TRIED_SAMPLES,
        activation_bytes=kept // _TRIED_SAMPLES,
        boundary_bytes=int(median(flowing)) // _TRIED_SAMPLES if flowing else None,
    )


def size_of(value: Any) -> int:
    """Bytes of a tensor, or of all tensors in lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(size_of(item) for item in value)
    if isinstance(value, dict):
        return sum(size_of(item) for item in value.values())
    return 0


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The parts that run one after the other: the model's children, those of lists one by one."""
    found: list[nn.Module] = []
    for child in model.children():
        found += list(child.children()) if isinstance(child, (nn.ModuleList, nn.Sequential)) else [child]
    return found or [model]


def count_layers(model: nn.Module) -> int:
    """Layers that have parameters: a stage of a pipeline needs one at least."""
    return max(1, sum(1 for layer in layers_of(model) if any(True for _ in layer.parameters())))


def _own_bytes(module: nn.Module) -> int:
    return sum(size_of(parameter) for parameter in module.parameters(recurse=False))


def _optimizer_bytes(task: Task, trained: list[nn.Parameter]) -> int:
    """What the optimizer keeps for each number, seen on a small parameter, times all numbers."""
    probe = nn.Parameter(torch.zeros(_PROBE))
    optimizer = task.optimizer([probe])
    probe.grad = torch.ones_like(probe)
    optimizer.step()
    kept = [value for value in optimizer.state[probe].values() if isinstance(value, Tensor) and value.numel() == _PROBE]
    return sum(size_of(value) for value in kept) * sum(parameter.numel() for parameter in trained) // _PROBE


def _try(task: Task, model: nn.Module, inputs: Any, targets: Any) -> tuple[int, list[int]]:
    """Bytes kept for the backward pass beside the parameters, and the bytes that leave each layer."""
    own = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}
    flowing: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = size_of(tensor)
        return tensor

    def leave(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        flowing.append(size_of(outputs))

    hooks = [layer.register_forward_hook(leave) for layer in layers_of(model)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        task.loss(model(inputs), targets)
    for hook in hooks:
        hook.remove()
    return sum(kept.values()), flowing
