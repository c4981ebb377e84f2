"""What a child that stands by does for practice must leave no trace."""

from __future__ import annotations

import torch
import torch.distributed as dist
from trainmaster_trainer.agent import rehearsal


def test_nothing_of_the_rehearsal_stays() -> None:
    generator = torch.get_rng_state()
    rehearsal.rehearse()
    assert torch.equal(torch.get_rng_state(), generator)
    assert not dist.is_initialized()
    # Names of groups are counted: a rank that rehearsed meets one that did not.
    assert dist.distributed_c10d._world.group_count == 0


def test_it_takes_the_whole_step() -> None:
    """Silence is for a torch that cannot; here it can."""
    rehearsal._begin()
    model, optimizer = rehearsal._step(torch, dist)
    assert dist.is_initialized()
    dist.destroy_process_group()
    rehearsal._keep(torch, model, optimizer)
    assert model.weight.grad is not None
