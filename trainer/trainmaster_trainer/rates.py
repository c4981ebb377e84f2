"""Rates: an optimizer's learning rates over the training, as the task's `learning_rate_factor` says.

Used by every strategy, where it takes its optimizer's step.
"""

from __future__ import annotations

from torch.optim import Optimizer

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.task import Task


class Rates:
    """What the rates are when the factor is 1: remembered at the start, before a checkpoint changes them."""

    def __init__(self, task: Task, optimizer: Optimizer) -> None:
        self._task, self._optimizer = task, optimizer
        self._whole = [group["lr"] for group in optimizer.param_groups]

    def set(self, fraction_done: float) -> None:
        """Those for the moment when this fraction of all steps is done.

        Raises:
            ConfigurationError: the task's factor is no number.
        """
        factor = self._factor(fraction_done)
        for group, rate in zip(self._optimizer.param_groups, self._whole, strict=True):
            group["lr"] = rate * factor

    def _factor(self, fraction_done: float) -> float:
        factor: object = self._task.learning_rate_factor(fraction_done)
        try:
            return float(factor)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ConfigurationError(
                f"spec.training.task: learning_rate_factor({fraction_done:g}) of {type(self._task).__name__} gave "
                f"{factor!r:.100}. Return a number, such as 1.0: the optimizer's rates are multiplied by it."
            ) from None
