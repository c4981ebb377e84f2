"""Carry the state of torch's learning-rate schedulers through checkpoints, which hold JSON and no pickle."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.task import Task

SETTINGS = ("lr", "momentum", "betas", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")
"""What torch's schedulers change or keep in an optimizer's groups."""
_PAIRS = "__pairs__"  # of a dict whose keys are numbers, as MultiStepLR's milestones


class Schedule:
    """Schedule is a task's scheduler: it goes on by one after each optimizer step."""

    def __init__(self, task: Task, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._name = type(task).__name__
        self._scheduler = self._checked(type(task).scheduler(task, optimizer), task)  # no attribute of that name
        self._begun = False  # a step was taken at the present rates

    def _checked(self, scheduler: object, task: Task) -> LRScheduler | None:
        if scheduler is None:
            return None
        where, kind = f"spec.training.task: scheduler() of {self._name} gave", type(scheduler).__name__
        if not isinstance(scheduler, LRScheduler):
            raise ConfigurationError(f"{where} {kind}. Return one of torch.optim.lr_scheduler, or None.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ConfigurationError(
                f"{where} {kind}, which waits for a figure to get no better, and a schedule goes on with the steps. "
                "Return another one, such as CosineAnnealingLR, or let spec.training.stopEarly end the training."
            )
        if scheduler.optimizer is not self._optimizer:
            raise ConfigurationError(f"{where} {kind} of another optimizer. Make it with the one that it is given.")
        if type(task).learning_rate_factor is not Task.learning_rate_factor:
            raise ConfigurationError(
                f"{where} {kind}, and {self._name} has a learning_rate_factor, too. Keep one of them."
            )
        return scheduler

    def __bool__(self) -> bool:
        return self._scheduler is not None

    def advance(self) -> None:
        """Set the rates for the next step: those of the scheduler's beginning for the first.

        Raises:
            ConfigurationError: it was made for fewer steps, as OneCycleLR is for a number of them.
        """
        if self._scheduler is not None and self._begun:
            try:
                self._scheduler.step()
            except ValueError as error:
                if not _is_torchs(error):
                    raise
                raise ConfigurationError(
                    f"spec.training.task: the scheduler of {self._name}, {type(self._scheduler).__name__}, takes no "
                    f"further step: {error}. Make it for as many steps as the training has (spec.training.steps)."
                ) from error
        self._begun = True

    def state(self) -> dict[str, Any]:
        """Return what must outlive the process, as JSON.

        Raises:
            ConfigurationError: the scheduler keeps what JSON does not have.
        """
        assert self._scheduler is not None  # noqa: S101 (asked only where there is one)
        plain = {
            "type": type(self._scheduler).__name__,
            "begun": self._begun,
            "rates": [_plain(group["lr"]) for group in self._optimizer.param_groups],
            "state": _plain(self._scheduler.state_dict()),
        }
        try:
            json.dumps(plain)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"spec.training.task: the scheduler of {self._name} keeps what a checkpoint cannot hold without "
                f"pickle: {error}. Let its state_dict() have numbers, texts, lists and dicts only."
            ) from None
        return plain

    def goes_on_from(self, saved: Mapping[str, Any]) -> bool:
        """Return whether what `state` gave is of a scheduler of this type."""
        return self._scheduler is not None and bool(saved["type"] == type(self._scheduler).__name__)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; a scheduler of another type begins anew."""
        if self._scheduler is None or not self.goes_on_from(saved):
            return
        self._scheduler.load_state_dict(_rich(saved["state"]))
        self._begun = bool(saved["begun"])
        for group, rate in zip(self._optimizer.param_groups, saved["rates"], strict=True):
            group["lr"] = group["lr"].new_tensor(rate) if isinstance(group["lr"], Tensor) else rate


def _is_torchs(error: Exception) -> bool:
    """Return whether it was raised by a scheduler of torch, and not by a function that it was given."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return bool(frame.f_globals.get("__name__") == torch.optim.lr_scheduler.__name__)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(member) for key, member in value.items()}
        return {_PAIRS: [[key, _plain(member)] for key, member in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in value]
    return value


def _rich(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {_PAIRS}:
            return {key: _rich(member) for key, member in value[_PAIRS]}
        return {key: _rich(member) for key, member in value.items()}
    return [_rich(member) for member in value] if isinstance(value, list) else value
