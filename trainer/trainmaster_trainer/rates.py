"""Set an optimizer's learning rates over the training, as the task's `learning_rate_factor` or `scheduler` says."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.schedules import Schedule
from trainmaster_trainer.task import Task


class Rates:
    """Rates sets an optimizer's rates, if the task has a factor or a scheduler; else they are left alone.

    The rates at factor 1 are remembered at the start, before a checkpoint changes them.
    """

    def __init__(self, task: Task, optimizer: Optimizer) -> None:
        self.schedule = Schedule(task, optimizer)
        self._task, self._optimizer = task, optimizer
        method = getattr(task.learning_rate_factor, "__func__", None)
        has_factor = method is not Task.learning_rate_factor
        self._whole = [self._rate(group.get("lr")) for group in optimizer.param_groups] if has_factor else []
        self.settings = {"lr"} if has_factor else set()
        """Which settings of a group are made anew for every step: nothing for a checkpoint, which others go on from."""

    def set(self, fraction_done: float) -> None:
        """Set the rates for the step after which this fraction of all steps is done. It is called once for each.

        Raises:
            ConfigurationError: the task's factor is not a number.
        """
        self.schedule.advance()
        if not self._whole:
            return
        factor = self._factor(fraction_done)
        for group, rate in zip(self._optimizer.param_groups, self._whole, strict=True):
            group["lr"] = rate * factor

    def without_schedule(self, strategy: str) -> Rates:
        """Return these rates, of a strategy whose optimizers do not take one step for each step of the training.

        Raises:
            ConfigurationError: the task has a scheduler.
        """
        if self.schedule:
            raise ConfigurationError(
                f"spec.strategy.type: {strategy} takes other steps than the training counts, so the scheduler of "
                f"{type(self._task).__name__} would be at another place. Write learning_rate_factor(self, fraction) "
                "in its place, or choose another strategy, such as AllReduce."
            )
        return self

    def _rate(self, rate: Any) -> Any:
        """Return the rate of one group. It must be a number, as the task's factor multiplies it."""
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
