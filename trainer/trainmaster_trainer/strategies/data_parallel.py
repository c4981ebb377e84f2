"""DataParallel: what AllReduce and Mirrored have in common.

Every rank holds the whole model and takes its share of each batch; gradients are averaged. Synchronous data
parallelism as in Goyal et al., "Accurate, large minibatch SGD" (2017), on torch's DistributedDataParallel, which
overlaps the all-reduce with the backward pass (Li et al., VLDB 2020).

DDP gives the mean of the ranks' gradients. Where the batch does not divide, the ranks' means stand for different
numbers of samples, so each loss is weighted by its share (`Batch.weight`) and the result is the gradient of the mean
over all samples: the same loss as OneDevice, step by step, but for the order of float32 sums (1e-5 relative). The
exception is a layer that looks at its whole batch, such as BatchNorm: it sees the rank's share only.
"""

from __future__ import annotations

import logging

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from trainmaster_trainer import randomness
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.collectives.choose import choose_reducer
from trainmaster_trainer.collectives.hook import Communicator, average
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.strategy import Snapshots, WholeModel
from trainmaster_trainer.task import Task

log = logging.getLogger(__name__)


class DataParallel(WholeModel):
    """Replicas of the model, kept equal by averaging gradients."""

    snapshots = Snapshots.REPLICATED

    def replicate(self, task: Task, group: Group, algorithm: str) -> None:
        """Make the model on every rank, equal to rank 0's, and connect the ranks."""
        self.share = Share(group.rank, group.world_size)
        self.build(task, group)
        reducer = choose_reducer(algorithm, group)
        self.replica = DistributedDataParallel(self.model, broadcast_buffers=False)  # sends rank 0's weights to all
        self._communicator: Communicator | None = None
        if reducer:
            self._communicator = Communicator(reducer, group.world_size, group.device)
            self.replica.register_comm_hook(self._communicator, average)
        # A sum of two has one order only.
        self._place_matters = group.world_size > 2 and not (reducer and reducer.in_rank_order)  # noqa: PLR2004
        self._rehearse = False

    @override
    def step(self, batch: Batch) -> Tensor | None:
        if self._rehearse:
            self._rehearsal(batch)
        loss = self._loss(batch)
        try:
            self.update(loss * batch.weight(self.group.world_size), batch.fraction_done)
        except RuntimeError:
            self._blame_communication()
            raise
        self._equalize_buffers()
        return loss.detach()

    @override
    def restore(self, state: State) -> None:
        super().restore(state)
        self._rehearse = self._place_matters

    @override
    def close(self) -> None:
        if self._communicator:
            self._communicator.close()
            traffic = self._communicator.reducer.traffic
            log.info("Exchanged gradients: %d bytes sent, %d bytes received.", traffic.sent, traffic.received)

    def _loss(self, batch: Batch) -> Tensor:
        return self.task.loss(self.replica(batch.inputs), batch.targets)

    def _blame_communication(self) -> None:
        """Say what really happened: DDP shows an error of the thread as a type error of its own."""
        if self._communicator and self._communicator.failure:
            raise self._communicator.failure from None

    def _equalize_buffers(self) -> None:
        """Each rank has moved the buffers (running means, say) by its own share: rank 0's count."""
        with torch.no_grad():
            for buffer in self.model.buffers():
                dist.broadcast(buffer, 0)

    def _rehearsal(self, batch: Batch) -> None:
        """A backward pass that changes nothing but the order in which DDP keeps gradients.

        DDP sorts its buckets after its first backward pass, and where in a bucket a gradient lies decides in which
        order the ranks' numbers are added, by most algorithms. A process that resumes would take its first step with
        unsorted buckets and end in other bits than one that never stopped.
        """
        generators = randomness.capture()
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        self._loss(batch).backward()  # type: ignore[no-untyped-call]
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        randomness.restore(generators)
        self._rehearse = False
