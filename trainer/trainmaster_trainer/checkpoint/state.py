"""A model and its optimizer as named tensors and JSON, under names that hold for any world size and strategy.

    model/<name>                     parameters and buffers, as in the model's state_dict
    optimizer/<parameter>/<key>      an optimizer's tensors, by the parameter's name instead of its number
    scalars["optimizer"]             all else that the optimizer keeps

Used by the strategies (`ModelState`) and, as plain data, by `save.py` and `load.py`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Tuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainmaster_trainer.errors import ConfigurationError

MODEL = "model/"
OPTIMIZER = "optimizer/"
Shapes = Dict[str, Tuple[str, Tuple[int, ...]]]  # name -> dtype, shape


@dataclass
class State:
    """What must outlive the process. `scalars` is JSON."""

    tensors: Dict[str, Tensor] = field(default_factory=dict)
    scalars: Dict[str, Any] = field(default_factory=dict)

    def model_shapes(self) -> Shapes:
        """What a checkpoint must hold to fit this model."""
        return {
            name: (dtype_name(tensor.dtype), tuple(tensor.shape))
            for name, tensor in self.tensors.items()
            if name.startswith(MODEL)
        }


class ModelState:
    """Gives and takes the state of one model and one optimizer."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._model = model
        self._optimizer = optimizer
        names = {parameter: name for name, parameter in model.named_parameters()}
        self._groups = [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]
        self._initial = [_settings(group) for group in optimizer.param_groups]

    def capture(self) -> State:
        """The live tensors, not copies."""
        tensors = {MODEL + name: tensor.detach() for name, tensor in self._model.state_dict().items()}
        others: Dict[str, Dict[str, Any]] = {}
        for name, parameter in self._trained():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{OPTIMIZER}{name}/{key}"] = value.detach()
                else:
                    others.setdefault(name, {})[key] = value
        return State(tensors, {"optimizer": self._scalars(others)})

    def restore(self, state: State) -> None:
        """Take over weights and optimizer state.

        Raises:
            ConfigurationError: they are another optimizer's. (The loader has compared the models already.)
        """
        model = {name[len(MODEL) :]: t for name, t in state.tensors.items() if name.startswith(MODEL)}
        self._model.load_state_dict(model)
        saved = state.scalars["optimizer"]
        self._check_optimizer(saved)
        self._optimizer.state.clear()
        for name, parameter in self._trained():
            found = _optimizer_state(name, parameter, state.tensors, saved["others"])
            if found:
                self._optimizer.state[parameter] = found
        for index, group in enumerate(self._optimizer.param_groups):
            _merge(group, self._initial[index], saved["groups"][index])

    def _trained(self) -> List[Tuple[str, nn.Parameter]]:
        groups = zip(self._groups, self._optimizer.param_groups, strict=True)
        return [pair for names, group in groups for pair in zip(names, group["params"], strict=True)]

    def _scalars(self, others: Dict[str, Dict[str, Any]]) -> Dict[str, Any]:
        groups = [
            {"names": names, "initial": initial, "current": _settings(group)}
            for names, initial, group in zip(
                self._groups, self._initial, self._optimizer.param_groups, strict=True
            )
        ]
        return {"type": type(self._optimizer).__name__, "groups": groups, "others": others}

    def _check_optimizer(self, saved: Mapping[str, Any]) -> None:
        here = type(self._optimizer).__name__
        if saved["type"] != here or [group["names"] for group in saved["groups"]] != self._groups:
            raise ConfigurationError(
                f"spec.checkpoint: the checkpoint was written by {saved['type']} over other parameter groups or by "
                f"another optimizer than the task's {here}. Give the job another name, or the task its old optimizer."
            )


def _settings(group: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: _plain(value) for key, value in group.items() if key != "params"}


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    return list(value) if isinstance(value, tuple) else copy.deepcopy(value)


def _merge(group: Dict[str, Any], initial: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Three ways: what the task has changed since (a new weight decay) counts, all else goes on from the checkpoint."""
    for key, value in saved["current"].items():
        if key in group and initial.get(key) == saved["initial"].get(key):
            group[key] = _like(group[key], value)


def _like(now: Any, value: Any) -> Any:
    if isinstance(now, Tensor):
        return torch.full_like(now, value)
    return tuple(value) if isinstance(now, tuple) else value


def _optimizer_state(
    name: str, parameter: Tensor, tensors: Mapping[str, Tensor], others: Mapping[str, Mapping[str, Any]]
) -> Dict[str, Any]:
    prefix = f"{OPTIMIZER}{name}/"
    found: Dict[str, Any] = dict(others.get(name, {}))
    for full, tensor in tensors.items():
        key = full[len(prefix) :]
        if full.startswith(prefix) and "/" not in key:
            # A step counter stays on the CPU, as torch's optimizers have it; moments live beside the parameter.
            found[key] = tensor.clone() if tensor.dim() == 0 else tensor.to(parameter.device, copy=True)
    return found


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def check_same_model(found: Shapes, expected: Shapes, where: str) -> None:
    """Compare a checkpoint's model with the one to train.

    Raises:
        ConfigurationError: names the first tensor that differs.
    """
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            raise ConfigurationError(
                f"spec.checkpoint: {where} holds another model. First difference: {name.removeprefix(MODEL)} is "
                f"{_describe(found.get(name))} in the checkpoint and {_describe(expected.get(name))} in the task. "
                "Put spec.training.arguments back, or train under a new job name (or without resumeFrom)."
            )


def _describe(tensor: Tuple[str, Tuple[int, ...]] | None) -> str:
    return f"{tensor[0]}{list(tensor[1])}" if tensor else "absent"
