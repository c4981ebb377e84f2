"""AllReduce: every rank holds the whole model and takes its share of each batch; gradients are averaged.

Synchronous data parallelism as in Goyal et al., "Accurate, large minibatch SGD" (2017), on torch's
DistributedDataParallel, which overlaps the all-reduce with the backward pass (Li et al., VLDB 2020).

DDP gives the mean of the ranks' gradients. Where the batch does not divide, the ranks' means stand for different
numbers of samples, so each loss is weighted by its share (`Batch.weight`) and the result is the gradient of the mean
over all samples: the same loss as OneDevice, step by step, but for the order of float32 sums (1e-5 relative). The
exception is a layer that looks at its whole batch, such as BatchNorm: it sees the rank's share only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from trainmaster_trainer import randomness
from trainmaster_trainer.checkpoint.state import State
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
        self._rehearse = False

    @override
    def step(self, batch: Batch) -> Tensor | None:
        if self._rehearse:
            self._rehearsal(batch)
        loss = self._loss(batch)
        self.update(loss * batch.weight(self.group.world_size), batch.fraction_done)
        return loss.detach()

    def _loss(self, batch: Batch) -> Tensor:
        return self.task.loss(self.replica(batch.inputs), batch.targets)

    @override
    def state(self) -> State:
        # Each rank has buffers of its own until DDP's next forward pass takes over rank 0's (running means, say).
        # A state is the same on all ranks.
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)
        return super().state()

    @override
    def restore(self, state: State) -> None:
        super().restore(state)
        self._rehearse = self.group.world_size > 2  # noqa: PLR2004 (a sum of two has one order only)

    def _rehearsal(self, batch: Batch) -> None:
        """A backward pass that changes nothing but the order in which DDP keeps gradients.

        DDP sorts its buckets after its first backward pass, and where in a bucket a gradient lies decides in which
        order the ranks' numbers are added. A process that resumes would take its first step with unsorted buckets
        and end in other bits than one that never stopped.
        """
        generators = randomness.capture()
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        self._loss(batch).backward()  # type: ignore[no-untyped-call]
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        randomness.restore(generators)
        self._rehearse = False
