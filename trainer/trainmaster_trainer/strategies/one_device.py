"""OneDevice is one process on one device, without communication. Every synchronous strategy is compared with it.

It is stochastic gradient descent as in Robbins and Monro, "A stochastic approximation method" (1951): a batch, the
gradient of its mean loss, a step of the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.checkpoint.checkpointable import Snapshots
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.strategy import WholeModel, check_options
from trainmaster_trainer.task import Task


class OneDevice(WholeModel):
    """OneDevice computes the whole batch on one device."""

    snapshots = Snapshots.REPLICATED
    settles = True
    counts = True

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("OneDevice", options, {})
        if group.world_size != 1:
            raise ConfigurationError(
                f"spec.strategy.type: OneDevice trains with one rank, here are {group.world_size}. "
                "Set spec.workers.replicas (and gpus) to 1, or choose AllReduce."
            )
        self.share = Share(0, 1)
        self.build(task, group)

    @override
    def step(self, batch: Batch) -> Tensor | None:
        return self.update(batch)
