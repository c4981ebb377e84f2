"""Read what a task's loss() gives for a part of a batch: a mean over samples, or a sum with how much was added up.

A mean over tokens is no mean over samples: ranks and micro-batches have different numbers of tokens that count. So such
a loss comes as a pair, and what is trained is the sum over the whole batch by the count of the whole batch: gradients
of sums are added up as they are, and divided when all ranks' counts are known (`numerics.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from trainmaster_trainer.errors import ConfigurationError

_INSTEAD = "choose OneDevice, AllReduce, Mirrored, CentralStorage, FullySharded or Tensor"


@dataclass(frozen=True)
class Loss:
    """`value` is a mean over samples where there is no `count`, else a sum. Neither has dimensions."""

    value: Tensor
    count: Tensor | None = None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)  # means over the same samples, without gradients

    def as_mean_for(self, what: str, instead: str = _INSTEAD) -> Loss:
        """Return it as a mean over samples, for `what`, which cannot carry a sum with a count.

        Raises:
            ConfigurationError: it is a sum with a count.
        """
        return replace(self, value=self.mean_for(what, instead))

    def mean_for(self, what: str, instead: str = _INSTEAD) -> Tensor:
        """Return the mean over samples, for `what`, which cannot carry a sum with a count.

        Raises:
            ConfigurationError: it is a sum with a count.
        """
        if self.count is not None:
            raise ConfigurationError(
                f"spec.training.task: loss() gave a sum with a count, which {what} cannot carry, as nobody there "
                f"knows the count of the whole batch in time. Return the mean of the samples' losses, or {instead}."
            )
        return self.value


def count_of(count: object, device: torch.device) -> Tensor | None:
    """Return a count as float64, which adds up whole numbers exactly; None where it is not one number."""
    if isinstance(count, Tensor) and count.numel() == 1:
        return count.detach().to(torch.float64).reshape(())
    if isinstance(count, (int, float)):
        return torch.tensor(float(count), dtype=torch.float64, device=device)
    return None


def factor_of(samples: int, count: Tensor) -> float:
    """Return what turns a sum by the number of samples into one by the count of the whole batch.

    A batch in which nothing counts moves nothing.

    Raises:
        ConfigurationError: the count is negative, or no number.
    """
    number: Any = count.item()
    if not math.isfinite(number) or number < 0:
        raise ConfigurationError(
            f"spec.training.task: the count that loss() gave beside the sum comes to {number} for the whole batch. "
            "Return how many things were added up, such as (targets != -100).sum()."
        )
    return samples / number if number else 0.0
