"""Share what is not averaged: buffers, which each rank has changed by its own samples, become the first rank's."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainmaster_trainer.checkpoint.pieces import local


@torch.no_grad()
def share(tensors: Iterable[Tensor], ranks: dist.ProcessGroup | None = None) -> None:
    """Replace these tensors by those of the first of some ranks, which all call this together.

    As bytes: gloo and NCCL do not know every dtype that a checkpoint does.
    """
    for tensor in tensors:
        here = local(tensor).detach()
        sent = here.contiguous()
        dist.broadcast(sent.view(-1).view(torch.uint8), group_src=0, group=ranks)
        if sent is not here:
            here.copy_(sent)


def share_extra_state(modules: Iterable[nn.Module]) -> None:
    """Share what modules keep beside parameters and buffers (`get_extra_state`), which is one tensor of each."""
    for module in modules:
        extra = module.get_extra_state().detach().clone()
        share([extra])
        module.set_extra_state(extra)
