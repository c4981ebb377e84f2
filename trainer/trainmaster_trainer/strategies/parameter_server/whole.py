"""Shards put together to the state of a whole model, as every strategy's checkpoint has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from trainmaster_trainer.answers import make_model, make_optimizer
from trainmaster_trainer.checkpoint.state import MODEL, ModelState, State
from trainmaster_trainer.data import Batch
from trainmaster_trainer.strategies.parameter_server.partition import divide
from trainmaster_trainer.strategies.strategy import Strategy
from trainmaster_trainer.task import Task


class Whole(Strategy):
    """The model as the task makes it, alike on every member; and for `resume`, a place to put what it found."""

    def __init__(self, task: Task, servers: int) -> None:
        self.share = None
        self.model = make_model(task)
        self.parameters = dict(self.model.named_parameters())
        self.buffers = dict(self.model.named_buffers())
        sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in self.parameters.items()}
        self.parts = divide(sizes, servers)
        # Before any part of it moves: the order of all parameters in the optimizer's groups.
        self._template = ModelState(self.model, make_optimizer(task, list(self.model.parameters()))).capture()
        self._aliases = _aliases(self.model)
        self.found: State | None = None

    def part(self, index: int) -> dict[str, nn.Parameter]:
        """The parameters of a server, in the model's order, which optimizers and checkpoints keep."""
        names = set(self.parts[index])
        return {name: parameter for name, parameter in self.parameters.items() if name in names}

    def join(self, states: list[State]) -> State:
        """One state of all shards' states."""
        tensors = {name: tensor for state in states for name, tensor in state.tensors.items()}
        tensors |= {MODEL + alias: tensors[MODEL + name] for alias, name in self._aliases.items()}
        optimizer = dict(self._template.scalars["optimizer"])
        parts = [state.scalars["optimizer"] for state in states]
        optimizer["groups"] = [
            {**group, "current": parts[0]["groups"][index]["current"]}
            for index, group in enumerate(optimizer["groups"])
        ]
        optimizer["others"] = {name: values for part in parts for name, values in part["others"].items()}
        return State(tensors, {"optimizer": optimizer})

    @override
    def state(self) -> State:
        return self._template

    @override
    def restore(self, state: State) -> None:
        self.found = state

    @override
    def step(self, batch: Batch) -> Tensor | None:
        raise NotImplementedError("the workers do")

    @override
    def evaluate(self) -> dict[str, float]:
        raise NotImplementedError("a worker does")


def _aliases(model: nn.Module) -> dict[str, str]:
    """Names in the state of tensors that have another name as a parameter: tied weights."""
    by_identity: Mapping[int, str] = {id(parameter): name for name, parameter in model.named_parameters()}
    state: dict[str, Any] = model.state_dict(keep_vars=True)
    return {name: by_identity[id(value)] for name, value in state.items() if by_identity.get(id(value), name) != name}
