"""Check what a task answers before a strategy uses it, so that the error for a wrong answer is in the user's words.

Strategies and `measure/` call these functions instead of the task's own methods of the same names.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainmaster_trainer.checkpoint.shard import DTYPES
from trainmaster_trainer.counted_loss import Loss, count_of
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.metric_names import MOST_METRICS, TAKEN, check_names
from trainmaster_trainer.model_guard import eval_mode
from trainmaster_trainer.task import Task


def make_model(task: Task) -> nn.Module:
    """Return a task's model, as every strategy begins with it.

    Raises:
        ConfigurationError: it is not a model, has shapes that are not known yet, or has nothing to train.
    """
    model: object = task.model()
    name = type(task).__name__
    if not isinstance(model, nn.Module):
        raise ConfigurationError(
            f"spec.training.task: model() of {name} gave {type(model).__name__}. Return a torch.nn.Module."
        )
    shapeless = [key for key, tensor in (*model.named_parameters(), *model.named_buffers()) if is_lazy(tensor)]
    if shapeless:
        raise ConfigurationError(
            f"spec.training.task: {', '.join(shapeless[:3])} of the model of {name} have no shape before the model is "
            "called (torch.nn.Lazy...). Call it with a sample inside model(), then return it."
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigurationError(
            f"spec.training.task: the model of {name} has no parameter that requires a gradient, so nothing is to be "
            "trained. Leave requires_grad of some of them at True."
        )
    check_savable(model, name)
    return model


_OTHER_TENSOR = (
    "Use another dtype (complex64 for complex128), or, of what model() can compute anew, a buffer with "
    "persistent=False."
)
_OTHER_VALUE = "It holds tensors alone: let get_extra_state() return one, always of the same shape and dtype."


def check_savable(model: nn.Module, name: str) -> None:
    """Refuse, at the start and not at the first save, a model that no checkpoint could hold.

    Raises:
        ConfigurationError: names the first such value.
    """
    for key, value in model.state_dict().items():
        is_tensor = isinstance(value, Tensor)
        kind = value.dtype if is_tensor else type(value).__name__
        if kind not in DTYPES:
            raise ConfigurationError(
                f"spec.training.task: {key} of the model of {name} is {kind}, which a checkpoint cannot hold. "
                + (_OTHER_TENSOR if is_tensor else _OTHER_VALUE)
            )


_OF_PARTS = "torch.distributed.tensor"
_OF_SCHEDULERS = "_wrapped_by_lr_sched"  # what most of torch.optim.lr_scheduler leave at an optimizer's step


def make_optimizer(task: Task, parameters: list[nn.Parameter]) -> Optimizer:
    """Return a task's optimizer, as every strategy uses it: one backward pass, one step.

    Raises:
        ConfigurationError: it is not an optimizer, it wants to compute the loss itself, a scheduler changes its rates,
            or it steps what is not the model's.
    """
    optimizer: object = task.optimizer(parameters)
    name = type(task).__name__
    if isinstance(optimizer, (list, tuple, dict)) and optimizer:
        raise ConfigurationError(
            f"spec.training.task: optimizer() of {name} gave {len(optimizer)} optimizers, and a step takes one. Return "
            "one with a group for each part: AdamW([{'params': first, 'lr': 0.1}, {'params': others, 'lr': 0.01}])."
        )
    if not isinstance(optimizer, Optimizer):
        raise ConfigurationError(
            f"spec.training.task: optimizer() of {name} gave {type(optimizer).__name__}. Return an Optimizer."
        )
    # `ReduceLROnPlateau` leaves no mark, so attributes are searched.
    kept = (*getattr(task, "__dict__", {}).values(), *vars(optimizer).values())
    if hasattr(optimizer.step, _OF_SCHEDULERS) or any(isinstance(one, LRScheduler) for one in kept):
        raise ConfigurationError(
            f"spec.training.task: a scheduler changes the rates of the optimizer of {name}, and no checkpoint would "
            f"know how far it is. Leave it out and override {name}.learning_rate_factor(fraction): the optimizer's "
            f"rates are multiplied by what it returns. Or return the scheduler from {name}.scheduler(optimizer)."
        )
    if not _is_called_alone(optimizer.step):
        raise ConfigurationError(
            f"spec.training.task: the optimizer of {name}, {type(optimizer).__name__}, computes the loss several times "
            "in one step, which no strategy does. Choose one that takes a step after one backward pass, such as AdamW."
        )
    known = set(parameters)
    strangers = [one for group in optimizer.param_groups for one in group["params"] if one not in known]
    if strangers:
        raise ConfigurationError(
            f"spec.training.task: the optimizer of {name} has a parameter of shape {list(strangers[0].shape)} that is "
            "not the model's, so neither other ranks nor a checkpoint would know it. Register it in the model."
        )
    return optimizer


def take_step(optimizer: Optimizer) -> None:
    """Take the step of a task's optimizer.

    Raises:
        ConfigurationError: it cannot compute with the parts of parameters that a rank holds.
    """
    try:
        optimizer.step()
    except (RuntimeError, NotImplementedError) as error:
        frames = traceback.walk_tb(error.__traceback__)
        if not any(frame.f_globals.get("__name__", "").startswith(_OF_PARTS) for frame, _ in frames):
            raise
        raise ConfigurationError(
            f"spec.training.task: the optimizer, {type(optimizer).__name__}, cannot compute with the parts of "
            f"parameters that each rank holds: {error}. Choose another one, such as AdamW, or a strategy that leaves "
            "parameters whole, such as AllReduce."
        ) from error


def _is_called_alone(step: Callable[..., object]) -> bool:
    try:
        inspect.signature(step).bind()
    except TypeError:
        return False
    return True


def loss_of(task: Task, outputs: Any, targets: Any) -> Loss:
    """Return a task's loss, as tensors without dimensions, with its metrics.

    Raises:
        ConfigurationError: it is not one number, or no gradient leads back from it; or a metric is no number.
    """
    loss: object = task.loss(outputs, targets)
    count: Tensor | None = None
    if isinstance(loss, (tuple, list)) and len(loss) == 2 and isinstance(loss[0], Tensor):  # noqa: PLR2004 (a pair)
        count = count_of(loss[1], loss[0].device)
        loss = loss if count is None else loss[0]
    if isinstance(loss, Tensor) and loss.numel() == 1:
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise ConfigurationError(
                f"spec.training.task: no gradient leads from what loss() of {type(task).__name__} gave to the model. "
                "Compute it from the model's outputs, without detach(), argmax() or torch.no_grad() on the way."
            )
        measured = metrics_of(task, outputs, targets, loss.device) if has_metrics(task) else {}
        return Loss(loss if loss.dim() == 0 else loss.reshape(()), count, measured)
    given = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
    raise ConfigurationError(
        f"spec.training.task: loss() of {type(task).__name__} gave {given}. Return the mean of the samples' losses, a "
        "tensor with one number; or a pair of their sum and how many things were added up."
    )


def has_metrics(task: Task) -> bool:
    """Return whether a task measures more than its loss."""
    return type(task).metrics is not Task.metrics


def metrics_of(task: Task, outputs: Any, targets: Any, device: torch.device) -> dict[str, Tensor]:
    """Return a task's metrics of a batch, as tensors without dimensions or gradients.

    Raises:
        ConfigurationError: they are not numbers by name, or one is called as a mean of the loss is.
    """
    with torch.no_grad():
        metrics: object = task.metrics(outputs, targets)
    where = f"spec.training.task: metrics() of {type(task).__name__} gave"
    if not isinstance(metrics, dict):
        raise ConfigurationError(f"{where} {type(metrics).__name__}. Return a dict of numbers by name.")
    if len(metrics) > MOST_METRICS:
        raise ConfigurationError(f"{where} {len(metrics)} metrics. Return {MOST_METRICS} at most.")
    check_names(where, metrics, TAKEN)
    return {name: _as_number(where, name, value, device) for name, value in metrics.items()}


def _as_number(where: str, name: str, value: object, device: torch.device) -> Tensor:
    """Return a metric as float32; a tensor stays on the device of the loss, so that no step waits for it."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return value.detach().reshape(()).to(device, torch.float32)
    return torch.tensor(_as_float(where, name, value), dtype=torch.float32, device=device)


def _as_float(where: str, name: str, value: Any) -> float:
    """Return a metric or figure as a float: a number of Python, NumPy or torch, or an array or a tensor of one.

    Raises:
        ConfigurationError: it is something else.
    """
    is_array = isinstance(value, (Tensor, np.ndarray, np.generic))
    has_one = is_array and math.prod(value.shape) == 1
    number: Any = value.item() if has_one else None if is_array else value
    # NumPy would leave the imaginary part out.
    if not isinstance(number, (str, bytes, np.complexfloating)):
        with suppress(TypeError, ValueError, OverflowError):
            return float(number)
    kind = "a tensor" if isinstance(value, Tensor) else "an array"
    given = f"{kind} of shape {list(value.shape)}" if is_array and not has_one else f"{value!r:.100}"
    raise ConfigurationError(f"{where} {given} as {name!r}. Give one number, such as a mean over the samples.")


def figures_of(task: Task, model: nn.Module) -> dict[str, float]:
    """Return a task's figures of merit for a model, which is in eval mode and without gradients meanwhile.

    Raises:
        ConfigurationError: they are not numbers by name.
    """
    with eval_mode(model), torch.no_grad():
        figures: object = task.evaluate(model)
    where = f"spec.training.task: evaluate() of {type(task).__name__} gave"
    if not isinstance(figures, dict):
        raise ConfigurationError(f"{where} {type(figures).__name__}. Return a dict of numbers by name.")
    check_names(where, figures)
    return {name: _as_float(where, name, value) for name, value in figures.items()}
