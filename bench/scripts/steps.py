"""The script that both contestants run, untouched: a small DDP model that notes when each step ended.

Arguments: the folder of the notes, the number of steps, hidden width, samples of a batch (32). Each rank appends
`step time pid` to `FOLDER/rank-R.txt`; times are seconds since the epoch, because two programs compare them.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(
    report: Callable[[int, int, torch.Tensor], None] | None = None,
    keep: Callable[[torch.nn.Module, torch.optim.Optimizer], Any] | None = None,
) -> None:
    """Train on noise."""
    folder, (steps, width, batch, *_) = Path(sys.argv[1]), (*map(int, sys.argv[2:]), 32)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    state = keep(wrapped, optimizer) if keep else None
    done = state.restore() if state else 0
    inputs, labels = torch.randn(batch, 64), torch.randint(0, 10, (batch,))
    with (folder / f"rank-{rank}.txt").open("a", buffering=1) as notes:
        for step in range(done + 1, steps + 1):
            optimizer.zero_grad()
            loss: torch.Tensor = torch.nn.functional.cross_entropy(wrapped(inputs), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if report is not None:
                report(step, steps, loss)
            if state is not None:
                state.step(step)
            notes.write(f"{step} {time.time():.6f} {os.getpid()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
