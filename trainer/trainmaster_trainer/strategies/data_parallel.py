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

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from trainmaster_trainer import randomness
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.collectives.gradients import COMPRESSIONS, NONE, Gradients
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.strategy import Snapshots, WholeModel
from trainmaster_trainer.task import Task

log = logging.getLogger(__name__)
COMPRESSION = "compression"
# torch 2.15 has a new name for it, and warns of the old one.
_NEW = "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
_BUFFERS_ARE_OURS: dict[str, Any] = {"forward_sync_buffers" if _NEW else "broadcast_buffers": False}
# A gradient is a view of its bucket: it need not be copied back out of it, and is there only once.
_OPTIONS: dict[str, Any] = {**_BUFFERS_ARE_OURS, "gradient_as_bucket_view": True}


class DataParallel(WholeModel):
    """Replicas of the model, kept equal by averaging gradients."""

    snapshots = Snapshots.REPLICATED
    settles = True

    def replicate(self, task: Task, group: Group, algorithm: str, compression: str) -> None:
        """Make the model on every rank, equal to rank 0's, and connect the ranks."""
        self.share = Share(group.rank, group.world_size)
        self.build(task, group)
        self.gradients = Gradients(group, algorithm, compression)
        self.replica = DistributedDataParallel(self.model, **_OPTIONS)  # sends rank 0's weights to all
        self.gradients.attach(self.replica)
        self._rehearse = False
        self._remember: Callable[[], None] | None = None
        if self.gradients.remembers:
            self.snapshots = Snapshots.PER_RANK  # type: ignore[misc]

    @override
    def step(self, batch: Batch) -> Tensor | None:
        if self._rehearse:
            self._rehearsal(batch)
        loss = self._loss(batch)
        try:
            self.update(loss * batch.weight(self.group.world_size), batch.fraction_done)
        except RuntimeError:
            if self.gradients.failure:  # which DDP shows as a type error of its own
                raise self.gradients.failure from None
            raise
        self.gradients.stepped()
        self._equalize_buffers()
        return loss.detach()

    @override
    def state(self) -> State:
        state = super().state()
        if self.gradients.remembers:
            own = {f"{self._own}{name}": tensor for name, tensor in self.gradients.memory().items()}
            known = {"ranks": self.group.world_size, "iteration": self.gradients.iteration}
            return State({**state.tensors, **own}, {**state.scalars, COMPRESSION: known})
        return state

    @override
    def restore(self, state: State) -> None:
        super().restore(state)
        self._rehearse = self.gradients.place_matters
        known = state.scalars.get(COMPRESSION, {})
        ranks = {name.split("/")[1] for name in state.tensors if name.startswith(f"{COMPRESSION}/")}
        # Of all ranks of the same number, or of none: they must agree on what is sent.
        if known.get("ranks") == self.group.world_size and len(ranks) in (0, self.group.world_size):
            self._recall(state)

    @override
    def restore_local(self, state: State) -> None:
        super().restore(state)
        self._rehearse = self.gradients.place_matters
        self._recall(state)

    def _recall(self, state: State) -> None:
        """After the rehearsal, which would spoil it."""
        own = {
            name.removeprefix(self._own): tensor.clone()
            for name, tensor in state.tensors.items()
            if name.startswith(self._own)
        }
        iteration = int(state.scalars.get(COMPRESSION, {}).get("iteration", 0))
        self._remember = partial(self.gradients.remember, own, iteration)

    @property
    def _own(self) -> str:
        return f"{COMPRESSION}/{self.group.rank}/"

    @override
    def close(self) -> None:
        self.gradients.close()
        traffic = self.gradients.traffic
        if traffic:
            log.info("Exchanged gradients: %d bytes sent, %d bytes received.", traffic.sent, traffic.received)

    def _loss(self, batch: Batch) -> Tensor:
        return self.task.loss(self.replica(batch.inputs), batch.targets)

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
        self.gradients.stepped()
        if self._remember:
            self._remember()
        self._rehearse = False


def compression_of(options: Mapping[str, Any], native: bool) -> str:
    """The compression among the options of a strategy.

    Raises:
        ConfigurationError: there is none of that name, or it brings an exchange of its own and another was asked for.
    """
    compression = str(options.get(COMPRESSION, NONE))
    if compression not in COMPRESSIONS:
        raise ConfigurationError(f"spec.strategy.compression: {compression!r} is not one of {', '.join(COMPRESSIONS)}.")
    if compression not in (NONE, "BF16") and not native:
        raise ConfigurationError(
            f"spec.strategy.compression: {compression} brings an exchange of its own and goes with Native only. "
            "Set it to BF16, or the algorithm to Native."
        )
    return compression
