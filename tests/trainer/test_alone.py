"""Code of the user's that one rank runs may use collectives all the same."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from trainmaster_trainer.group import alone


def count(rank: int, address: str) -> None:
    """Add ones up over the group, on rank 0 alone first, as a metric in `Task.evaluate` does."""
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    if rank == 0:
        with alone():
            dist.barrier()
            one = torch.ones(1)
            dist.all_reduce(one)
            assert (one.item(), dist.get_world_size(), dist.get_rank()) == (1, 1, 0)
    both = torch.ones(1)
    dist.all_reduce(both)
    assert (both.item(), dist.get_world_size(), dist.get_rank()) == (2, 2, rank)
    dist.destroy_process_group()


def test_a_metric_that_adds_itself_up_waits_for_nobody(tmp_path: object) -> None:
    mp.spawn(count, args=(f"file://{tmp_path}/meet",), nprocs=2)  # type: ignore[attr-defined,no-untyped-call]
