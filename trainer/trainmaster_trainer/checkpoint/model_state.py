"""Capture and restore the state of a model and its optimizer, under the names of `state.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from trainmaster_trainer.checkpoint.averages import Average
from trainmaster_trainer.checkpoint.pieces import local, placed_like
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.soundness import Allowed, allowed_in
from trainmaster_trainer.checkpoint.state import (
    ANOTHER_FOLDER,
    MODEL,
    OPTIMIZER,
    Shapes,
    State,
    dtype_name,
    first_difference,
)
from trainmaster_trainer.errors import ConfigurationError, with_article
from trainmaster_trainer.numerics import LossScale
from trainmaster_trainer.schedules import SETTINGS, Schedule

_JSON = "json:"
_MOST_JSON = 1 << 22  # bytes of values that ranks keep as JSON, of all parameters; they become 25 times as many
Placed = Callable[[Tensor, Tensor], Tensor]  # a value as it is saved, and what it is to be like
_Forms = dict[str, tuple[torch.dtype, torch.Size]]


@dataclass(frozen=True)
class UnsplitShapes:
    """UnsplitShapes holds a model's shapes and an optimizer's groups before they were split, the same on all ranks."""

    shapes: Shapes
    groups: list[list[str]]  # names of parameters

    @classmethod
    def capture(cls, model: nn.Module, optimizer: Optimizer) -> UnsplitShapes:
        """Return those of model and optimizer. Call it before anything is split."""
        names = {parameter: name for name, parameter in model.named_parameters()}
        shapes = {
            MODEL + name: (dtype_name(tensor.dtype), tuple(tensor.shape)) for name, tensor in model.state_dict().items()
        }
        return cls(shapes, [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups])


class ModelState:
    """ModelState captures and restores the state of one model and one optimizer.

    Of a part of a model, where `whole` is given; `names` then has the whole model's name for each name of the part.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        whole: UnsplitShapes | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._whole = whole
        self._whole_name = names or {}
        self._names = {parameter: self._outside(name) for name, parameter in model.named_parameters()}
        self._own = [[self._names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]
        self._groups = whole.groups if whole else self._own
        self._initial = [_settings(group) for group in optimizer.param_groups]
        of_model = model.state_dict()
        self._forms = _forms(of_model)
        # What the state may always hold. Tensors that are no parameter, or have two names, count as buffers.
        tensors = {MODEL + self._outside(name): local(value.detach()) for name, value in of_model.items()}
        buffers = tensors.keys() - {MODEL + name for name in self._names.values()}
        for parameter, name in self._names.items():
            kept = optimizer.state.get(parameter, {})
            tensors |= {f"{OPTIMIZER}{name}/{key}": local(one) for key, one in kept.items() if isinstance(one, Tensor)}
        self.allowed: Allowed = allowed_in(tensors, buffers)
        self.loss_scale: LossScale | None = None
        self.schedule: Schedule | None = None
        self.average: Average | None = None
        self.of_the_moment: Collection[str] = ()  # settings of groups that are made anew for every step

    def keep_average(self, decay: float) -> None:
        """Keep an exponential moving average of the weights from now on."""
        self.average = Average(self._optimizer, self._names, decay)

    def _outside(self, name: str) -> str:
        return self._whole_name.get(name, name)

    def capture(self) -> State:
        """Return the live tensors, not copies.

        Raises:
            ConfigurationError: the shapes of the model have changed, so that a resumed training, which begins with the
                first ones, could not load them.
        """
        of_model = self._model.state_dict()
        if (now := _forms(of_model)) != self._forms:
            shapes = [
                {name: (dtype_name(form[0]), tuple(form[1])) for name, form in forms.items()}
                for forms in (self._forms, now)
            ]
            name, was, has_become = first_difference(*shapes) or ("", "", "")
            raise ConfigurationError(
                f"spec.training.task: {name} of the model was {was} as model() made it and is {has_become} after a "
                "step, so nobody could go on from a checkpoint with it. Make it in model() with the shape and dtype "
                "that it keeps, or register it with persistent=False."
            )
        tensors = {MODEL + self._outside(name): value.detach() for name, value in of_model.items()}
        others: dict[str, dict[str, Any]] = {}
        for parameter, name in self._names.items():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{OPTIMIZER}{name}/{key}"] = value.detach()
                elif self._whole is None:
                    others.setdefault(name, {})[key] = _plain(key, value)
                else:  # no rank knows them all
                    tensors[f"{OPTIMIZER}{name}/{_JSON}{key}"] = torch.frombuffer(
                        bytearray(json.dumps(_plain(key, value)).encode()), dtype=torch.uint8
                    )
        tensors |= self.average.tensors() if self.average else {}
        scalars = {"optimizer": self._scalars(others)}
        if self.loss_scale:
            scalars["loss_scale"] = self.loss_scale.state()
        if self.schedule:
            scalars["schedule"] = self.schedule.state()
        return State(tensors, scalars, self._whole.shapes if self._whole else None, allowed=self.allowed)

    def restore(self, state: State, placed: Placed = placed_like) -> None:
        """Take over weights and optimizer state: whole tensors, unless `placed` knows better.

        Raises:
            ConfigurationError: they are another optimizer's, or a script's. (The loader has compared the models.)
        """
        if "optimizer" not in state.scalars:
            raise ConfigurationError(
                "spec.checkpoint: the checkpoint was saved by a script (session.state), and a task cannot read what it "
                "says of the optimizer. Go on with the script (spec.training.command), or from a task's checkpoint."
            )
        self._model.load_state_dict(self._weights(state, placed))
        saved = state.scalars["optimizer"]
        self._check_optimizer(saved)
        loose = self._loose | saved.get("own", {})
        self._optimizer.state.clear()
        self._optimizer.state.update(loose)
        by_parameter = _by_parameter(state.tensors, saved["others"])
        for index, group in enumerate(self._optimizer.param_groups):
            for name, parameter in zip(self._own[index], group["params"], strict=True):
                if name in by_parameter:
                    self._optimizer.state[parameter] = {
                        key: _moved(key, value, parameter, group, placed) for key, value in by_parameter[name].items()
                    }
            _merge(group, self._initial[index], saved["groups"][index], self._made_anew(state))
        if self.loss_scale and "loss_scale" in state.scalars:
            self.loss_scale.restore(state.scalars["loss_scale"])
        if self.average:
            self.average.restore(state.tensors, placed)
        if self.schedule and "schedule" in state.scalars:
            self.schedule.restore(state.scalars["schedule"])

    def _made_anew(self, state: State) -> Collection[str]:
        """Return which settings of groups are the task's own: where another schedule's curve had ended is no beginning.

        A cosine ends near 0: a task with another schedule, or with none now, would go on with that, and learn nothing.
        """
        saved = state.scalars.get("schedule")
        is_another = saved is not None and not (self.schedule and self.schedule.goes_on_from(saved))
        return SETTINGS if is_another else ()

    def _weights(self, state: State, placed: Placed) -> dict[str, Tensor]:
        """Return what `load_state_dict` takes. It copies plain parameters and buffers itself, but not extra state."""
        model = self._model
        copied = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        copied |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
        return {
            name: saved if name in copied and not isinstance(here, DTensor) else placed(saved, here)
            for name, here in model.state_dict().items()
            for saved in [state.tensors[MODEL + self._outside(name)]]
        }

    def _scalars(self, others: dict[str, dict[str, Any]]) -> dict[str, Any]:
        groups = [
            {"names": names, "initial": initial, "current": _settings(group, self.of_the_moment)}
            for names, initial, group in zip(self._groups, self._initial, self._optimizer.param_groups, strict=True)
        ]
        own = {_word(key): _plain(_word(key), value) for key, value in self._loose.items()}
        return {"type": type(self._optimizer).__name__, "groups": groups, "others": others, "own": own}

    @property
    def _loose(self) -> dict[Any, Any]:
        """Return what the optimizer keeps beside the state of its parameters, such as a counter of its own."""
        return {key: value for key, value in self._optimizer.state.items() if not isinstance(key, Tensor)}

    def _check_optimizer(self, saved: Mapping[str, Any]) -> None:
        here = type(self._optimizer).__name__
        if saved["type"] != here or [group["names"] for group in saved["groups"]] != self._groups:
            raise ConfigurationError(
                f"spec.checkpoint: the checkpoint was written by {saved['type']} over other parameter groups or by "
                f"another optimizer than the task's {here}. Give the task its old optimizer, or "
                f"train in another folder ({ANOTHER_FOLDER})."
            )


def check_readable(state: State) -> None:
    """Check that all that `ModelState.restore` reads is there.

    Raises:
        CorruptCheckpointError: it is not.
    """
    try:
        saved = state.scalars["optimizer"]
        _by_parameter(state.tensors, saved["others"])
        kinds: list[tuple[Any, type]] = [(saved["type"], str), (saved.get("own", {}), dict)]
        if "loss_scale" in state.scalars:
            scale = state.scalars["loss_scale"]
            kinds += [(float(scale["value"]), float), (int(scale["good"]), int)]
        if schedule := state.scalars.get("schedule"):
            kinds += [(schedule["type"], str), (schedule["state"], dict), (schedule["rates"], list)]
        for group in saved["groups"]:
            kinds += [(group["names"], list), (group["initial"], dict), (group["current"], dict)]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptCheckpointError(f"what it says of the optimizer cannot be read: {error!r}") from None
    for value, kind in kinds:
        if not isinstance(value, kind):
            raise CorruptCheckpointError(f"what it says of the optimizer cannot be read: {value!r:.100} is no {kind}")


def _forms(tensors: Mapping[str, Tensor]) -> _Forms:
    """Return dtypes and shapes like `Shapes`, but not as text: snapshots in memory are taken after every step."""
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}


def forget_others(optimizer: Optimizer, kept: Collection[Tensor]) -> None:
    """Delete an optimizer's state of parameters that it no longer steps. State of its own stays."""
    for parameter in [one for one in optimizer.state if isinstance(one, Tensor) and one not in kept]:
        del optimizer.state[parameter]


def _word(key: Any) -> str:
    if isinstance(key, str):
        return key
    raise ConfigurationError(
        f"spec.training.task: its optimizer keeps something under {key!r:.50}, neither a parameter nor a name. Let it "
        "keep what is its own under names."
    )


def _settings(group: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    return {key: _plain(key, value) for key, value in group.items() if key != "params" and key not in without}


def _plain(key: str, value: Any) -> Any:
    """Return a value as JSON has it.

    Raises:
        ConfigurationError: JSON has no such thing.
    """
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, (tuple, list)):
        return [_plain(key, item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(key, item) for name, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigurationError(
        f"spec.training.task: its optimizer keeps {with_article(type(value).__name__)} under {key!r}, which a "
        "checkpoint cannot hold without pickle. Let the optimizer keep numbers, strings and tensors only."
    )


def _merge(
    group: dict[str, Any], initial: Mapping[str, Any], saved: Mapping[str, Any], made_anew: Collection[str]
) -> None:
    """Merge three ways: what the task has changed since (a new weight decay) counts, the rest is the checkpoint's."""
    for key, value in saved["current"].items():
        if key in group and key not in made_anew and initial.get(key) == saved["initial"].get(key):
            if isinstance(group[key], Tensor):
                group[key] = torch.full_like(group[key], value)
            else:
                group[key] = tuple(value) if isinstance(group[key], tuple) else value  # JSON has lists only


def _by_parameter(tensors: Mapping[str, Tensor], others: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the optimizer's state of each parameter, by its name."""
    of_optimizer = {full: tensor for full, tensor in tensors.items() if full.startswith(OPTIMIZER)}
    packed = {full for full in of_optimizer if full.rpartition("/")[2].startswith(_JSON)}
    if sum(of_optimizer[full].nbytes for full in packed) > _MOST_JSON:
        raise ValueError(f"its values have more than {_MOST_JSON} bytes")
    found: dict[str, dict[str, Any]] = {name: dict(values) for name, values in others.items()}
    for full, tensor in of_optimizer.items():
        name, _, key = full.removeprefix(OPTIMIZER).rpartition("/")
        found.setdefault(name, {})[key.removeprefix(_JSON)] = (
            json.loads(tensor.numpy().tobytes()) if full in packed else tensor
        )
    return found


def _moved(key: str, value: Any, parameter: Tensor, group: Mapping[str, Any], placed: Placed) -> Any:
    """Return a value where its optimizer wants it: moments are on the parameter's device."""
    if not isinstance(value, Tensor):
        return value
    # A step counter is there only if torch wants it.
    on_cpu = key == "step" and not (group.get("capturable") or group.get("fused"))
    return value.to("cpu", copy=True) if on_cpu else placed(value, parameter)
