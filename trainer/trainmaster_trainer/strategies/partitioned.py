"""Hold what is common to the strategies that split a model among ranks: FullySharded, Tensor, Pipeline and Mesh.

Every rank first makes the whole model on the CPU, with the same weights as everywhere, and the optimizer over all of
its parameters, as OneDevice would. Then the strategy keeps this rank's part (`divide`), and the optimizer goes on with
what is left of each of its groups. So groups, names and first weights do not depend on who holds what, and a
checkpoint of one strategy is one of all. The whole model has to fit into each rank's CPU memory once, at the start.

All ranks evaluate together, since it takes all of them to compute an output.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import weakref
from abc import abstractmethod
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import Optimizer
from typing_extensions import override

from trainmaster_trainer.answers import make_model, make_optimizer
from trainmaster_trainer.checkpoint.checkpointable import Snapshots
from trainmaster_trainer.checkpoint.model_state import ModelState, UnsplitShapes, forget_others
from trainmaster_trainer.checkpoint.pieces import local, local_like, placed_like
from trainmaster_trainer.checkpoint.state import MODEL, State
from trainmaster_trainer.counted_loss import Loss
from trainmaster_trainer.data import WHOLE, Batch
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group, set_timeout
from trainmaster_trainer.numerics import squares_here
from trainmaster_trainer.rates import Rates
from trainmaster_trainer.strategies.axes import Axes
from trainmaster_trainer.strategies.sharing import share
from trainmaster_trainer.strategies.strategy import Strategy
from trainmaster_trainer.strategies.used_parameters import SameUse
from trainmaster_trainer.task import Task
from trainmaster_trainer.validation import Evaluator

Place = tuple[nn.Module, str]  # a module, and the name of its parameter or buffer


class Partitioned(Strategy):
    """Partitioned is a strategy whose ranks each hold a part of one model."""

    snapshots = Snapshots.COPIED
    counts = True
    axes: Axes
    mesh: DeviceMesh
    optimizer: Optimizer
    _state: ModelState
    _aliases: dict[str, str]  # the other names of what is in a module that the whole model has several times

    @abstractmethod
    def divide(self, model: nn.Module) -> nn.Module:
        """Keep this rank's part of the whole model, which is on the CPU; modules stay the same objects.

        Raises:
            ConfigurationError: the model cannot be divided by so many.
        """

    def build(self, task: Task, group: Group, axes: Axes) -> None:
        """Make this rank's part of model and optimizer."""
        self.task, self.group, self.axes = task, group, axes
        self.share = axes.share(group.rank)
        self.mesh = axes.mesh(group)
        model = make_model(task)
        self.optimizer = make_optimizer(task, list(model.parameters()))
        whole = UnsplitShapes.capture(model, self.optimizer)
        names: dict[tuple[int, str], list[str]] = {}
        for name, (module, attribute) in _places(model):
            names.setdefault((id(module), attribute), []).append(name)
        homes = {getattr(module, attribute): (module, attribute) for _, (module, attribute) in _places(model)}
        self.model = self.divide(model).to(group.device)
        known = {name: names[id(module), attribute] for name, (module, attribute) in _places(self.model)}
        self._aliases = {alias: first for first, *others in known.values() for alias in others}
        held = {id(module) for module in self.model.modules()}
        _hand_over(self.optimizer, {old: home for old, home in homes.items() if id(home[0]) in held})
        self._state = ModelState(self.model, self.optimizer, whole, {own: first for own, (first, *_) in known.items()})
        replaced = [weakref.ref(old) for old, home in homes.items() if getattr(*home, None) is not old]
        del homes
        _check_nobody_keeps(replaced)
        self._rates = Rates(self.task, self.optimizer)
        self._state.of_the_moment, self._state.schedule = self._rates.settings, self._rates.schedule
        self._peers = self._those_with_other_samples()
        names_here = {parameter: name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        self._same_use = SameUse(names_here, self._peers, group.device) if self._peers else None
        self._has_gradients = False  # of a part of this step's batch

    @property
    @override
    def draws_as(self) -> int:
        return self.axes.first_of_tensor(self.group.rank)

    @override
    def step(self, batch: Batch) -> Tensor | None:
        self.share_buffers()
        self.optimizer.zero_grad()
        self._has_gradients = False
        loss = self.numerics.backward(batch, self._loss_of_part, batch.weight(self.axes.data * self.axes.sharded))
        loss = self.numerics.over_counts(loss, batch.global_size, self._total)
        self.update(batch.fraction_done)
        return loss

    def _total(self, count: Tensor) -> Tensor:
        """Return the sum of the counts of the ranks that see other samples. All of them call it together."""
        total = count.to(self.group.device, copy=True)
        if self._peers is not None:
            dist.all_reduce(total, group=self._peers)
        return total

    def _loss_of_part(self, part: Batch) -> Loss:
        if self._same_use and self._has_gradients:
            self._same_use.tell()  # of the part before
        self._has_gradients = True
        return self.loss(part)

    def update(self, fraction_done: float) -> None:
        """Take an optimizer step with the gradients that there are, at the task's learning rate for this moment."""
        if self._same_use:
            self._same_use.tell()
        self._rates.set(fraction_done)
        self.numerics.take_step(self.optimizer, self._norm)

    def _norm(self, parameters: list[nn.Parameter]) -> Tensor:
        """Return the norm of the whole model's gradient: each part of it counts once, however many ranks have it."""
        squares = torch.zeros((), dtype=torch.float64, device=self.group.device)
        for parameter in parameters:
            squares += squares_here(parameter) / self._copies(parameter.grad)
        dist.all_reduce(squares)
        return squares.sqrt().float()

    def _copies(self, gradient: Tensor | None) -> int:
        """Return how many ranks hold the same part of the gradient as this rank; a gradient may be whole."""
        alike = self.group.world_size // self.axes.pipeline
        if not isinstance(gradient, DTensor):
            return alike
        split = [axis for axis, one in enumerate(gradient.placements) if not isinstance(one, Replicate)]
        return alike // math.prod(gradient.device_mesh.size(axis) for axis in split)

    def share_buffers(self) -> None:
        """Set buffers (such as running means) to those of the first share of the batch, as under AllReduce."""
        if self._peers is not None:
            share(self.model.buffers(), self._peers)

    @override
    def state(self) -> State:
        self.share_buffers()
        state = self._capture()
        for alias, first in self._aliases.items():
            if MODEL + first in state.tensors:  # some buffers need not outlive the process
                state.tensors[MODEL + alias] = state.tensors[MODEL + first]
        return state

    @override
    def restore(self, state: State) -> None:
        self._state.restore(state)

    @override
    def local_state(self) -> State:
        state = self._capture()
        return dataclasses.replace(state, tensors={name: local(one) for name, one in state.tensors.items()})

    def _capture(self) -> State:
        if self._same_use:
            self._same_use.verify()
        return self._state.capture()

    @override
    def restore_local(self, state: State) -> None:
        self._state.restore(state, local_like)

    @override
    def evaluate(self, trial: Evaluator) -> dict[str, float]:
        return self.evaluate_with(self.model, trial)

    def evaluate_with(self, model: nn.Module, trial: Evaluator) -> dict[str, float]:
        """Return the task's figures of a model; all ranks call it with what stands for the model on them.

        No rank has a model of its own, so they all see all validation samples.
        """
        with trial.untouched(self.model):
            parts = trial.sums(model, WHOLE)
            self._reshard()
            own = trial.own(model)
            self._reshard()
            return trial.together(parts, own)

    def _reshard(self) -> None:
        """Drop what a forward pass without a backward pass has left gathered."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def _those_with_other_samples(self) -> dist.ProcessGroup | None:
        """Return the group of ranks that hold the same buffers and see other samples; None if it is this rank alone.

        All ranks call it together.
        """
        if self.axes.data * self.axes.sharded == 1:
            return None
        peers = self.mesh["data", "sharded"]._flatten("samples").get_group()  # noqa: SLF001 (no public name yet)
        set_timeout(self.group.patience, peers)
        return peers


def _places(model: nn.Module) -> Iterator[tuple[str, Place]]:
    """Yield every parameter and buffer by its name, and where it lives. A shared one has several names."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for table in (module._parameters, module._buffers):  # noqa: SLF001 (what state_dict looks at too)
            for attribute, value in table.items():
                if value is not None:
                    yield f"{prefix}.{attribute}" if prefix else attribute, (module, attribute)


def _hand_over(optimizer: Optimizer, homes: dict[Tensor, Place]) -> None:
    """Replace the optimizer's parameters by those that are now in their places, and drop those that are gone."""
    for group in optimizer.param_groups:
        held = [(old, getattr(*homes[old])) for old in group["params"] if old in homes]
        for old, new in held:
            if old in optimizer.state and old is not new:
                before = optimizer.state.pop(old)  # some begin with moments
                optimizer.state[new] = {
                    key: placed_like(value, new) if isinstance(value, Tensor) else value
                    for key, value in before.items()
                }
        group["params"] = [new for _, new in held]
    kept = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    forget_others(optimizer, kept)
    _one_by_one_if_mixed(optimizer, kept)


def _check_nobody_keeps(replaced: list[weakref.ref[Tensor]]) -> None:
    """Check that parameters that were replaced are no longer referenced.

    Raises:
        ConfigurationError: one of them still is, and changes to it would have no effect.
    """
    if any(one() is not None for one in replaced):
        gc.collect()  # perhaps nothing but a cycle holds it
    for parameter in (kept for one in replaced if (kept := one()) is not None):
        raise ConfigurationError(
            f"spec.training.task: something keeps a parameter of shape {list(parameter.shape)} as optimizer() was "
            "given it, such as a hook of the optimizer, and here a part of it is trained in its place: what is done "
            "to the old one would have no effect. Take parameters from optimizer.param_groups when they are needed."
        )


def _one_by_one_if_mixed(optimizer: Optimizer, parameters: set[nn.Parameter]) -> None:
    """Turn off torch's fast paths, which take only tensors that are all split alike, if there are several kinds."""
    kinds = {parameter.device_mesh if isinstance(parameter, DTensor) else None for parameter in parameters}
    if len(kinds) > 1:
        for group in optimizer.param_groups:
            if group.get("fused"):
                raise ConfigurationError(
                    "spec.training.task: its optimizer is fused, which cannot work on parameters that are split "
                    "in different ways. Make it without fused=True."
                )
            if "foreach" in group:
                group["foreach"] = False
