"""Recompute activations in the backward pass in place of keeping them, or have the model compiled.

The first is gradient checkpointing: Chen et al., "Training deep nets with sublinear memory cost" (2016).
"""

from __future__ import annotations

import logging

from torch import nn
from torch.distributed._composable.checkpoint_activation import (
    checkpoint,
)  # by hooks: names of modules, and so checkpoints, stay the same
from torch.nn.modules.batchnorm import _BatchNorm

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.task import Task

log = logging.getLogger(__name__)


def recompute_layers(task: Task, model: nn.Module) -> None:
    """Let each layer that `model_layers` names keep its inputs only, and compute once more when gradients are due.

    Raises:
        ConfigurationError: the task names no layer that could.
    """
    name = type(task).__name__
    try:
        named = {layer for _, layer in task.model_layers(model)}
    except ConfigurationError:
        named = set()
    inside = [one for one in model.modules() if one in named and one is not model and [*one.parameters()]]
    moving = {part for part in model.modules() if isinstance(part, _BatchNorm) and part.track_running_stats}
    layers = [one for one in inside if moving.isdisjoint(one.modules())]
    if not layers:
        why = "all of them have running means, which a second pass would move twice" if inside else "it names none"
        raise ConfigurationError(
            f"spec.training.activationCheckpointing: it is for the layers that model_layers() of {name} names, and "
            f"{why}. Write model_layers(self, model): [(name, module), ...], or remove the field."
        )
    if len(layers) < len(inside):
        log.info("%d layers with running means (BatchNorm) keep their activations.", len(inside) - len(layers))
    for layer in layers:
        checkpoint(layer)


def compile_model(model: nn.Module) -> None:
    """Have torch compile the model, in place, at its first call.

    What is compiled follows from the shapes of a call alone (`dynamic=False`), so that a process that resumes computes
    with the same code as one that never stopped.
    """
    model.compile(dynamic=False)
