"""Rates: an optimizer's learning rates over the training, as the task's `learning_rate_factor` says.

Used by every strategy, where it takes its optimizer's step.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.task import Task


class Rates:
    """An optimizer's, for a task that has a factor; those of any other task are its optimizer's own business.

    What they are when the factor is 1 is remembered at the start, before a checkpoint changes them.
    """

    def __init__(self, task: Task, optimizer: Optimizer) -> None:
        self._task, self._optimizer = task, optimizer
        method = getattr(task.learning_rate_factor, "__func__", None)
        has_factor = method is not Task.learning_rate_factor
        self._whole = [self._rate(group.get("lr")) for group in optimizer.param_groups] if has_factor else []
        self.settings = {"lr"} if has_factor else set()
        """Which settings of a group are made anew for every step: nothing for a checkpoint, which others go on from."""

    def set(self, fraction_done: float) -> None:
        """Those for the moment when this fraction of all steps is done.

        Raises:
            ConfigurationError: the task's factor is no number.
        """
        if not self._whole:
            return
        factor = self._factor(fraction_done)
        for group, rate in zip(self._optimizer.param_groups, self._whole, strict=True):
            group["lr"] = rate * factor

    def _rate(self, rate: Any) -> Any:
        """Of one group. An optimizer may find its own, as long as nobody wants it multiplied."""
        if isinstance(rate, (int, float, Tensor)):
            return rate
        raise ConfigurationError(
            f"spec.training.task: the lr of {type(self._optimizer).__name__} is {rate!r:.50}, and "
            f"{type(self._task).__name__} has a learning_rate_factor to multiply it by. Give the optimizer a number as "
            "lr, or take learning_rate_factor out."
        )

    def _factor(self, fraction_done: float) -> float:
        factor: object = self._task.learning_rate_factor(fraction_done)
        try:
            return float(factor)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ConfigurationError(
                f"spec.training.task: learning_rate_factor({fraction_done:g}) of {type(self._task).__name__} gave "
                f"{factor!r:.100}. Return a number, such as 1.0: the optimizer's rates are multiplied by it."
            ) from None
