"""Join shards to the state of a whole model, as every strategy's checkpoint has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer, SparseAdam
from typing_extensions import override

from trainmaster_trainer.answers import make_model, make_optimizer
from trainmaster_trainer.checkpoint.checkpointable import WholeState
from trainmaster_trainer.checkpoint.model_state import ModelState, forget_others
from trainmaster_trainer.checkpoint.state import MODEL, OPTIMIZER, State
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.strategies.parameter_server.partition import divide
from trainmaster_trainer.strategies.used_parameters import check_no_extra_state
from trainmaster_trainer.task import Task


class UndividedModel(WholeState):
    """UndividedModel holds the model as the task makes it, alike on every member, and takes what `resume` finds."""

    def __init__(self, task: Task, servers: int) -> None:
        self.task = task
        self.model = make_model(task)
        self.parameters = dict(self.model.named_parameters())
        self.buffers = dict(self.model.named_buffers())
        sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in self.parameters.items()}
        self.parts = divide(sizes, servers)
        # Before any part of it moves: the order of all parameters in the optimizer's groups.
        self._template = ModelState(self.model, self._optimizer()).capture()
        self._aliases = _aliases(self.model)
        check_no_extra_state("ParameterServer", self.model)
        self.found: State | None = None

    def part(self, index: int) -> dict[str, nn.Parameter]:
        """Return the parameters of a server, in the model's order, which optimizers and checkpoints keep."""
        names = set(self.parts[index])
        return {name: parameter for name, parameter in self.parameters.items() if name in names}

    def _optimizer(self) -> Optimizer:
        optimizer = make_optimizer(self.task, list(self.model.parameters()))
        # Workers push a number for each parameter.
        if isinstance(optimizer, SparseAdam):
            raise ConfigurationError(
                f"spec.training.task: its optimizer is {type(optimizer).__name__}, which takes sparse gradients only, "
                "and under ParameterServer all gradients reach the optimizer dense. Choose one that takes those, such "
                "as Adam or Adagrad, or train with OneDevice, LocalSGD or Gossip."
            )
        return optimizer

    def optimizer(self, index: int) -> Optimizer:
        """Return the task's optimizer, made over all parameters and then reduced to those of a server, by group."""
        optimizer = self._optimizer()
        kept = set(self.part(index).values())
        for group in optimizer.param_groups:
            group["params"] = [parameter for parameter in group["params"] if parameter in kept]
        forget_others(optimizer, kept)
        return optimizer

    def join(self, states: list[State]) -> State:
        """Return the state of the whole model, under the names that it has with every strategy."""
        found = {name: tensor for state in states for name, tensor in state.tensors.items()}
        found |= {MODEL + alias: found[MODEL + name] for alias, name in self._aliases.items()}
        known = self._template.tensors
        tensors = {name: tensor for name, tensor in found.items() if name.startswith(OPTIMIZER) or name in known}
        optimizer = dict(self._template.scalars["optimizer"])
        parts = [state.scalars["optimizer"] for state in states]
        optimizer["groups"] = [
            {**group, "current": parts[0]["groups"][index]["current"]}
            for index, group in enumerate(optimizer["groups"])
        ]
        optimizer["others"] = {name: values for part in parts for name, values in part["others"].items()}
        optimizer["own"] = parts[0]["own"]
        return State(tensors, {"optimizer": optimizer}, allowed=self._template.allowed)

    @override
    def state(self) -> State:
        return self._template

    @override
    def restore(self, state: State) -> None:
        self.found = state


def _aliases(model: nn.Module) -> dict[str, str]:
    """Return the further names of parameters and buffers in the state: of tied weights, or a layer used twice."""
    named = (*model.named_parameters(), *model.named_buffers())
    by_identity: Mapping[int, str] = {id(tensor): name for name, tensor in named}
    state: dict[str, Any] = model.state_dict(keep_vars=True)
    return {name: by_identity[id(value)] for name, value in state.items() if by_identity.get(id(value), name) != name}
