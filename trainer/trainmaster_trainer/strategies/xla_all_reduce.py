"""XlaAllReduce is AllReduce on XLA devices: OneDevice, Mirrored and AllReduce with `accelerator: tpu`.

Within a replica the batch is spread over its devices and XLA adds up the gradients (see xla.py); between replicas
they are added up on the hosts, by gloo. So one device, one machine of many, and many machines are the same code. The
losses are those of OneDevice but for the order of sums (1e-5 relative over the first steps). No TPU was at hand: it
is proved on the XLA CPU device (tests/xla).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer import xla
from trainmaster_trainer.answers import loss_of
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.sharing import share
from trainmaster_trainer.strategies.strategy import WholeModel
from trainmaster_trainer.task import Task


class XlaAllReduce(WholeModel):
    """XlaAllReduce keeps one whole model per replica, on all of its XLA devices."""

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:  # noqa: ARG002 (one way only)
        self.share = Share(group.rank, group.world_size)
        self.build(task, group)
        self._mesh = xla.XlaMesh()

    @override
    def step(self, batch: Batch) -> Tensor | None:
        xla.seed_as_torch()
        self.set_learning_rate(batch.fraction_done)
        self.optimizer.zero_grad()
        outputs = self.model(self._mesh.spread(batch.inputs))
        told = loss_of(self.task, outputs, self._mesh.spread(batch.targets))
        batch.check_has_all()
        self.numerics.measure(told.metrics, batch.size)
        loss = told.mean_for("a TPU", instead="train on GPUs or CPUs")
        (loss * batch.weight(self.group.world_size)).backward()  # type: ignore[no-untyped-call]
        if self.group.world_size > 1:
            self._average_between_hosts()
        self.numerics.take_step(self.optimizer)
        xla.finish_step()
        return loss.detach()

    @torch.no_grad()
    def _average_between_hosts(self) -> None:
        """Average gradients, as zeros where a replica's loss does not depend on a parameter; take rank 0's buffers."""
        xla.finish_step()  # all of it at once: each look at a tensor that was only recorded runs the step up to it
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        found = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained]
        have = torch.tensor([float(one.grad is not None) for one in trained])
        total = torch.cat([*(gradient.flatten().cpu() for gradient in found), have])
        dist.all_reduce(total)
        *sums, had = torch.split(total / self.group.world_size, [*(one.numel() for one in trained), len(trained)])
        for parameter, gradient, any_had in zip(trained, sums, had.tolist(), strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter) if any_had else None
        buffers = [buffer.cpu() for buffer in self.model.buffers()]
        share(buffers)
        for buffer, first in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(first)
