"""AllReduce: every rank holds the whole model and takes its share of each batch; gradients are averaged.

Synchronous data parallelism as in Goyal et al., "Accurate, large minibatch SGD" (2017), on torch's
DistributedDataParallel, which overlaps the all-reduce with the backward pass (Li et al., VLDB 2020).

DDP gives the mean of the ranks' gradients. Where the batch does not divide, the ranks' means stand for different
numbers of samples, so each loss is weighted by its share (`Batch.weight`) and the result is the gradient of the mean
over all samples: the same loss as OneDevice, step by step, but for the order of float32 sums (1e-5 relative).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.strategy import WholeModel, check_options
from trainmaster_trainer.task import Task

ALGORITHMS = ("Native", "Ring", "Hierarchical", "Driver")


class AllReduce(WholeModel):
    """Replicas of the model, kept equal by averaging gradients."""

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("AllReduce", options, {"algorithm": ALGORITHMS})
        algorithm = options.get("algorithm", "Native")
        if algorithm != "Native":
            raise ConfigurationError(
                f"spec.strategy.allReduce.algorithm: {algorithm} is not in this version yet. Use Native."
            )
        self.share = Share(group.rank, group.world_size)
        self.build(task, group)
        self.replica = DistributedDataParallel(self.model)  # sends rank 0's weights to all

    @override
    def step(self, batch: Batch) -> Tensor | None:
        loss = self.task.loss(self.replica(batch.inputs), batch.targets)
        self.update(loss * batch.weight(self.group.world_size), batch.fraction_done)
        return loss.detach()
