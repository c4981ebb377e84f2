"""DataParallel is the common part of AllReduce and Mirrored.

Every rank holds the whole model and takes its share of each batch; gradients are averaged. This is synchronous data
parallelism as in Goyal et al., "Accurate, large minibatch SGD" (2017), on torch's DistributedDataParallel, which
overlaps the all-reduce with the backward pass (Li et al., VLDB 2020).

DDP gives the mean of the ranks' gradients. Where the batch does not divide, the ranks' means stand for different
numbers of samples, so each loss is weighted by its share (`Batch.weight`) and the result is the gradient of the mean
over all samples: the same loss as OneDevice, step by step, but for the order of float32 sums (1e-5 relative). The
exception is a layer that looks at its whole batch, such as BatchNorm: it sees the rank's share only.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from trainmaster_trainer.batch_loss import loss_of_batch
from trainmaster_trainer.checkpoint.checkpointable import Snapshots
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.collectives.gradients import COMPRESSIONS, NONE, Gradients
from trainmaster_trainer.counted_loss import Loss
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.model_guard import ModelGuard, with_extra_state
from trainmaster_trainer.strategies.outside_changes import (
    EARLY,
    check_equal,
    check_same_trained,
    check_unchanged,
    frozen,
    is_looked_at,
    marks,
    trained,
)
from trainmaster_trainer.strategies.sharing import share, share_extra_state
from trainmaster_trainer.strategies.strategy import WholeModel
from trainmaster_trainer.strategies.used_parameters import all_used, check_dense, uses_all
from trainmaster_trainer.task import Task

log = logging.getLogger(__name__)
COMPRESSION = "compression"
SOME_REST = "some_rest"  # among the scalars of a state
# torch 2.15 has a new name for it, and warns of the old one.
_NEW = "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
_BUFFERS_ARE_OURS: dict[str, Any] = {"forward_sync_buffers" if _NEW else "broadcast_buffers": False}
# A gradient is a view of its bucket: it need not be copied back out of it, and is there only once.
_OPTIONS: dict[str, Any] = {**_BUFFERS_ARE_OURS, "gradient_as_bucket_view": True}
_CHANGED = (
    "The loss of this step did not depend on every parameter that the first step's loss depended on, so this rank "
    "has sent no gradient of them and the others wait for it. Let every loss depend on all of them (adding 0 * "
    "parameter.sum() is enough), or choose LocalSGD, CentralStorage, ParameterServer or Gossip."
)
_LEAVE_NONE_OUT = "let every loss depend on all parameters that are trained (adding 0 * parameter.sum() is enough)"


class DataParallel(WholeModel):
    """DataParallel keeps replicas of the model equal by averaging gradients."""

    snapshots = Snapshots.REPLICATED
    settles = True
    counts = True
    replica: DistributedDataParallel  # from the first step on

    def replicate(self, task: Task, group: Group, algorithm: str, compression: str) -> None:
        """Make the model on every rank, and what exchanges its gradients."""
        self.share = Share(group.rank, group.world_size)
        self.build(task, group)
        self.gradients = Gradients(group, algorithm, compression)
        check_dense("a mean of gradients", self.model)
        self._with_extra_state = [*with_extra_state(self.model).values()]
        self._connected = False
        self._are_equal = False  # all ranks have the same weights, and know it
        self._in_parts = False
        self._steps = 0  # of this process
        self._looked = False  # for parameters that the loss does not depend on
        self._rehearse = False
        self._recalled: tuple[dict[str, Tensor], int] | None = None  # what was left out, until the rehearsal is over
        self._some_rest = False  # some loss left out parameters, so each step is looked at
        if self.gradients.remembers:
            self.snapshots = Snapshots.PER_RANK  # type: ignore[misc]

    def _connect(self, *, find_unused_parameters: bool) -> None:
        options = {**_OPTIONS, "find_unused_parameters": find_unused_parameters, "init_sync": not self._are_equal}
        ours = {**frozen(self.model), **dict(self.model.named_buffers())}
        if not self._are_equal:
            share(ours.values())
        # Else it would send those too, beside the weights (init_sync), and does not know every dtype.
        ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model  # noqa: SLF001 (no public name)
        ignore(self.model, list(ours))  # type: ignore[no-untyped-call]
        self.replica = DistributedDataParallel(self.model, **options)
        self.gradients.attach(self.replica)
        self._trained = trained(self.model)  # which it knows from now on, and no others
        self._connected = self._are_equal = True

    @override
    def step(self, batch: Batch) -> Tensor | None:
        if not self._connected:
            self._connect(find_unused_parameters=self._some_rest)
            self._looked = self._some_rest
        parts = batch.parts(self.numerics.micro_batch)
        self._in_parts = len(parts) > 1
        if self._in_parts and not self._looked:
            self._look(parts)
        if self._rehearse:
            self._rehearsal(parts[-1])
        try:
            loss = self.update(batch, batch.weight(self.group.world_size), self.replica.no_sync)
        except RuntimeError:
            if self.gradients.failure:  # which DDP shows as a type error of its own
                raise self.gradients.failure from None
            raise
        self.gradients.stepped()
        share(self.model.buffers())  # such as running means, which each rank changes by its own share
        share_extra_state(self._with_extra_state)
        # The ranks' parameters are compared in steps 2, 4, 8 ... of this process; the first step is urgent.
        self._steps += 1
        if 1 < self._steps <= EARLY and is_looked_at(self._steps):
            check_equal(dict(self.model.named_parameters()), self.group.device)
        return loss

    @override
    def check_gradients(self) -> None:
        some_rest = self.replica.find_unused_parameters
        check_same_trained(type(self).__name__, self._trained, self.model, may_rest=some_rest)
        if some_rest:
            return
        if any(one.requires_grad and one.grad is None for one in self.model.parameters()):
            raise RuntimeError(_CHANGED)

    @override
    def state(self) -> State:
        state = super().state()
        if self._some_rest:
            state.scalars[SOME_REST] = True
        if self.gradients.remembers:
            memory, iteration = self._recalled or (self.gradients.memory(), self.gradients.iteration)
            own = {f"{self._own}{name}": tensor for name, tensor in memory.items()}
            known = {"ranks": self.group.world_size, "iteration": iteration}
            scalars, tensors = {**state.scalars, COMPRESSION: known}, {**state.tensors, **own}
            return dataclasses.replace(state, tensors=tensors, scalars=scalars, own=frozenset(own))
        return state

    @override
    def restore(self, state: State) -> None:
        self._go_on_from(state)
        known = state.scalars.get(COMPRESSION, {})
        ranks = {name.split("/")[1] for name in state.tensors if name.startswith(f"{COMPRESSION}/")}
        # Of all ranks of the same number, or of none: they must agree on what is sent.
        if known.get("ranks") == self.group.world_size and len(ranks) in (0, self.group.world_size):
            self._recall(state)

    @override
    def restore_local(self, state: State) -> None:
        self._go_on_from(state)
        self._recall(state)

    def _go_on_from(self, state: State) -> None:
        """Restore the state, which is the same on all ranks; buffers that are not persistent are not in it."""
        super().restore(state)
        self._rehearse = self.gradients.place_matters
        self._some_rest = bool(state.scalars.get(SOME_REST))
        self._are_equal = {name for name, _ in self.model.named_buffers()} <= self.model.state_dict().keys()

    def _recall(self, state: State) -> None:
        """Keep the compression's state until after the rehearsal, which would spoil it."""
        own = {
            name.removeprefix(self._own): tensor.clone()
            for name, tensor in state.tensors.items()
            if name.startswith(self._own)
        }
        iteration = int(state.scalars.get(COMPRESSION, {}).get("iteration", 0))
        self._recalled = own, iteration

    @property
    def _own(self) -> str:
        return f"{COMPRESSION}/{self.group.rank}/"

    @override
    def close(self) -> None:
        self.gradients.close()
        traffic = self.gradients.traffic
        if traffic:
            log.debug("Exchanged gradients: %d bytes sent, %d bytes received.", traffic.sent, traffic.received)

    @override
    def loss(self, batch: Batch) -> Loss:
        if self._looked:
            return self._forward(batch)
        self._looked = True
        before, still = ModelGuard(self.model), marks(frozen(self.model))
        loss = self._forward(batch)
        if all_used([loss.value], self.model.parameters(), self.group):
            return loss
        before.come_back()
        check_unchanged("a loss that leaves out parameters", still, marks(frozen(self.model)), _LEAVE_NONE_OUT)
        del loss
        self._connect_anew()
        return self._forward(batch)

    def _look(self, parts: Sequence[Batch]) -> None:
        """Look before a step in parts whether all parameters are used: between parts the ranks cannot reconnect."""
        self._looked = True
        before, still = ModelGuard(self.model), marks(frozen(self.model))
        with self.replica.no_sync():
            used = all_used((self._forward(part).value for part in parts), self.model.parameters(), self.group)
        before.come_back()
        check_unchanged("microBatchSize", still, marks(frozen(self.model)), "leave spec.training.microBatchSize out")
        if not used:
            self._connect_anew()

    def _connect_anew(self) -> None:
        """Connect with a DDP that searches the graph of each step for unused parameters, together with all ranks."""
        self._some_rest = True
        del self.replica  # and with it the hooks on the parameters
        self._connect(find_unused_parameters=True)

    def _forward(self, batch: Batch) -> Loss:
        loss = loss_of_batch(self.task, self.replica(batch.inputs), batch, counts=self.counts)
        sends = self.replica.require_backward_grad_sync and not self.replica.find_unused_parameters
        # Of the last part too: `check_gradients` would be content with a gradient that an earlier one left.
        if self._in_parts and sends and not uses_all(loss.value, self.model.parameters()):
            raise RuntimeError(_CHANGED)
        return loss

    def _rehearsal(self, batch: Batch) -> None:
        """Run a backward pass that changes nothing but the order in which DDP keeps gradients.

        DDP sorts its buckets after its first backward pass, and where in a bucket a gradient lies decides in which
        order the ranks' numbers are added, by most algorithms. A process that resumes would take its first step with
        unsorted buckets and end in other bits than one that never stopped.
        """
        before = ModelGuard(self.model, frozen(self.model).values())
        self.loss(batch).value.backward()  # type: ignore[no-untyped-call]
        before.come_back()
        self.gradients.stepped()
        if self._recalled:
            self.gradients.remember(*self._recalled)
            self._recalled = None
        self._rehearse = False


def compression_of(options: Mapping[str, Any], native: bool) -> str:
    """Return the compression among the options of a strategy.

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
