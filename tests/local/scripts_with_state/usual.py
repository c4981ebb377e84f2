"""A script as strangers write them: DDP, dropout, batch norm, tied weights, a schedule, and draws of three libraries.

What it draws comes from global generators, so its model is another one if any of them is not where it was.
"""

import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainmaster_trainer import session
from trainmaster_trainer.session import SessionState

STEPS = int(os.environ.get("STEPS", "40"))
SECONDS = float(os.environ.get("SECONDS_A_STEP", "0"))


class Tied(nn.Module):
    """A model with two names for one weight, a buffer that counts, and layers that draw."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.last = nn.Linear(6, 6)
        self.last.weight = self.first.weight
        self.middle = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.3))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Count, and compute."""
        self.seen += 1
        outputs: torch.Tensor = self.last(self.middle(self.first(inputs)))
        return outputs


def main() -> None:
    """Train."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    replica = DistributedDataParallel(Tied())
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(1 + rank)
    mine = np.random.default_rng(rank)
    optimizer = torch.optim.AdamW(replica.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    state: SessionState = session.state(model=replica, optimizer=optimizer, schedule=schedule, mine=mine)
    first = state.restore()
    Path(f"rank-{rank}-{os.environ.get('TRAINMASTER_ATTEMPT', '')}.txt").write_text(str(os.getpid()))
    losses = []
    for step in range(first + 1, STEPS + 1):
        optimizer.zero_grad()
        scale = 1 + 0.1 * (np.random.rand() + random.random() + mine.random())  # noqa: NPY002, S311 scripts do
        loss = replica(torch.randn(4, 6) * scale).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        session.report(step=step, total=STEPS, loss=loss.item())
        state.step(step)
        time.sleep(SECONDS)
    if rank == 0:
        torch.save({"model": replica.module.state_dict(), "losses": losses}, "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
