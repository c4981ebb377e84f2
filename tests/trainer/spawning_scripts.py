"""A script of one rank that trains in processes which it starts itself: `Job.call` gives it the group."""

from __future__ import annotations

import torch
from torch import nn
from torch.multiprocessing.spawn import ProcessRaisedException, start_processes
from torch.nn.parallel import DistributedDataParallel
from trainmaster_trainer import session
from trainmaster_trainer.group import Group


def spawning(group: Group, file: str) -> str:
    """Start two processes that train as one group; return what ends them."""
    torch.distributed.destroy_process_group()  # a fork would have it without its threads
    try:
        start_processes(_spawned, (file,), nprocs=2, start_method="fork")  # type: ignore[no-untyped-call]
    except ProcessRaisedException as error:
        return str(error)
    finally:
        torch.distributed.init_process_group("gloo", init_method=f"file://{file}-again", rank=0, world_size=1)
    return "nothing"


def _spawned(place: int, file: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=place, world_size=2)
    model = DistributedDataParallel(nn.Linear(3, 1))
    state = session.state(model=model)
    for step in range(state.restore() + 1, 3):
        model(torch.ones(3)).sum().backward()
        state.step(step)
