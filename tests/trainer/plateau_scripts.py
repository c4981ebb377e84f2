"""A script whose schedule follows a loss, as a function for ranks that were started."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import SGD, lr_scheduler
from trainmaster_trainer import session
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group

LOSSES = ([4.0, 3.0, 2.0, 2.0], [4.0, 3.0, 3.0, 2.0])  # by rank and step: the rates differ after step 3, not after 4


def plateau(group: Group, averaged: bool) -> list[str]:
    """Train a model that FSDP2 has divided. Return what is said, and after which step."""
    model = nn.Linear(3, 2)
    fully_shard(model, mesh=init_device_mesh("cpu", (group.world_size,)))
    optimizer = SGD(model.parameters(), lr=0.5)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    state = session.state(model=model, optimizer=optimizer, schedule=schedule)
    for step in range(state.restore() + 1, 5):
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
        loss = torch.tensor(LOSSES[group.rank][step - 1])
        if averaged:
            dist.all_reduce(loss)
        schedule.step(loss.item())
        try:
            state.step(step)
        except ConfigurationError as error:
            return [f"step {step}", str(error)]
    return ["the end"]
