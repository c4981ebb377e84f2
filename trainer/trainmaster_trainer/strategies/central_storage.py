"""CentralStorage stores the variables once, on the CPU; all devices of the worker compute with them.

TensorFlow (Abadi et al., OSDI 2016) calls this CentralStorageStrategy. Rank 0 has the only optimizer. The parameters
lie in memory that all ranks of the worker share: ranks on the CPU compute right in it, those with a GPU copy them to it
for each step.

    every rank    forward and backward pass over its share of the batch
    rank 0        adds up the gradients in the order of ranks: a sum has one value, whichever rank comes first
    rank 0        takes the optimizer step, in place
    every rank    goes on when that is done

The same loss as OneDevice, step by step, but for the order of float32 sums; each share counts by its size.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from trainmaster_trainer.answers import make_model
from trainmaster_trainer.checkpoint.checkpointable import Snapshots
from trainmaster_trainer.checkpoint.soundness import allowed_in
from trainmaster_trainer.checkpoint.state import MODEL, State
from trainmaster_trainer.collectives.funnel import Funnel
from trainmaster_trainer.collectives.memory_slots import share_slots
from trainmaster_trainer.collectives.peer_memory import connect
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.outside_changes import OutsideChanges, trained
from trainmaster_trainer.strategies.strategy import WholeModel, check_one_machine, check_options
from trainmaster_trainer.strategies.used_parameters import check_dense, check_no_extra_state
from trainmaster_trainer.task import Task
from trainmaster_trainer.validation import Evaluator

ALIGNMENT = 64  # bytes, a cache line


class CentralStorage(WholeModel):
    """CentralStorage keeps one copy of parameters and optimizer for all ranks of a worker."""

    snapshots = Snapshots.PER_RANK
    averages = False
    counts = True

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("CentralStorage", options, {})
        check_one_machine("CentralStorage", group)
        self.share = Share(group.rank, group.world_size)
        self.task, self.group = task, group
        self._storage = make_model(task)
        check_dense("CentralStorage", self._storage)
        check_no_extra_state("CentralStorage", self._storage)
        self._funnel = _connect(group, list(self._storage.parameters()))
        # A device's model is a copy; on the CPU it is the storage itself.
        on_cpu = group.device.type == "cpu"
        self.model = self._storage if on_cpu else copy.deepcopy(self._storage).to(group.device)
        OutsideChanges("CentralStorage", self.model, lambda: dict(self.model.named_parameters()))
        if group.is_first:
            self.make_optimizer(self._storage)
        stored = {MODEL + name: tensor.detach() for name, tensor in self._storage.state_dict().items()}
        self._allowed = allowed_in(stored, {MODEL + name for name, _ in self._storage.named_buffers()})
        self._wait_for_first()

    @override
    def step(self, batch: Batch) -> Tensor | None:
        self._pull()
        self.model.zero_grad()
        loss = self.numerics.backward(batch, self.loss, batch.size / batch.global_size)
        loss = self.numerics.over_counts(loss, batch.global_size, self.total)
        begin = time.monotonic()
        self._add_up_gradients()
        if self.group.is_first:
            self.set_learning_rate(batch.fraction_done)
            self.numerics.take_step(self.optimizer)
        self._wait_for_first()
        self.waited = 0.0 if self.group.is_first else time.monotonic() - begin
        return loss

    @torch.no_grad()
    def _pull(self) -> None:
        if self.model is not self._storage:
            for parameter, stored in zip(self.model.parameters(), self._storage.parameters(), strict=True):
                parameter.copy_(stored)

    @torch.no_grad()
    def _add_up_gradients(self) -> None:
        """Add up the gradients on rank 0, into the stored parameters' `grad`: None where no rank has a gradient."""
        for used, stored in _by_dtype(list(self.model.parameters()), list(self._storage.parameters())):
            gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in used]
            have = torch.tensor([one.grad is not None for one in used], dtype=used[0].dtype)
            total = torch.cat([*(gradient.flatten().cpu() for gradient in gradients), have])
            if self._funnel:
                self._funnel.reduce(total)
            *sums, had = torch.split(total, [*(one.numel() for one in used), len(used)])
            if self.group.is_first:
                for parameter, gradient, any_has in zip(stored, sums, had, strict=True):
                    parameter.grad = gradient.view_as(parameter) if any_has else None

    @torch.no_grad()
    def _wait_for_first(self) -> None:
        """Wait until rank 0 has changed what is stored; take over its loss scale and buffers (running means, say)."""
        if self._funnel:
            scale = self.numerics.loss_scale
            told = torch.tensor([scale.value, float(scale.refused)] if scale else [1.0, 0.0])
            self._funnel.broadcast(told)
            if scale:
                scale.value, scale.refused = float(told[0]), bool(told[1])
            for buffer in self.model.buffers():
                theirs = buffer.cpu().contiguous()
                self._funnel.broadcast(theirs)
                buffer.copy_(theirs)

    @override
    def trained(self) -> list[nn.Parameter]:
        return trained(self._storage)

    @override
    def state(self) -> State:
        for stored, buffer in zip(self._storage.buffers(), self.model.buffers(), strict=True):
            stored.copy_(buffer)
        if self.group.is_first:
            return super().state()
        tensors = {MODEL + name: tensor.detach() for name, tensor in self._storage.state_dict().items()}
        return State(tensors, allowed=self._allowed)

    @override
    def restore(self, state: State) -> None:
        if self.group.is_first:
            super().restore(state)
            for buffer, stored in zip(self.model.buffers(), self._storage.buffers(), strict=True):
                buffer.copy_(stored)
        self._wait_for_first()

    @override
    def evaluate(self, trial: Evaluator) -> dict[str, float]:
        self._pull()
        return super().evaluate(trial)


def _connect(group: Group, parameters: Sequence[nn.Parameter]) -> Funnel | None:
    """Move rank 0's parameters into memory that all ranks see, and let the other ranks use them.

    Raises:
        ConfigurationError: the ranks cannot share that much memory.
    """
    if group.world_size == 1:
        return None
    ranks = list(range(group.world_size))
    *offsets, size = _offsets(parameters)
    slots = share_slots(group, "central/slots", ranks)
    segments = connect(group, "central/parameters", ranks, size, owners=[0])
    if not slots or not segments:
        raise ConfigurationError(
            f"spec.strategy.type: CentralStorage keeps {size >> 20} MiB of parameters in memory that all ranks of a "
            "worker share, and these ranks cannot. Raise spec.workers.memory, or choose Mirrored."
        )
    with torch.no_grad():
        for parameter, offset in zip(parameters, offsets, strict=True):
            area = segments[0].data[offset : offset + parameter.numel() * parameter.element_size()]
            place = area.view(parameter.dtype).view(parameter.shape)
            if group.is_first:
                place.copy_(parameter)
            parameter.data = place
    return Funnel(slots)


def _offsets(parameters: Sequence[nn.Parameter]) -> Iterator[int]:
    """Yield where each tensor begins, and then where all of them end."""
    offset = 0
    for parameter in parameters:
        yield offset
        size = parameter.numel() * parameter.element_size()
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    yield max(offset, ALIGNMENT)


def _by_dtype(
    used: Sequence[nn.Parameter], stored: Sequence[nn.Parameter]
) -> Iterator[tuple[list[nn.Parameter], list[nn.Parameter]]]:
    """Yield, for each dtype, the trained parameters of a device and the stored parameters that they belong to."""
    pairs = [pair for pair in zip(used, stored, strict=True) if pair[0].requires_grad]
    for dtype in dict.fromkeys(one.dtype for one, _ in pairs):
        alike = [pair for pair in pairs if pair[0].dtype == dtype]
        yield [one for one, _ in alike], [other for _, other in alike]
