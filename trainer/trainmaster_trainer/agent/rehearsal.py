"""One throwaway step in a child that stands by, so that a rank's first step finds everything touched once before.

Called by `children` in that child. What is new to a process the first time (pages that it shared with its parent,
symbols, gloo's tables, the autograd engine) costs 15 ms of the processor per rank; standing by it costs nobody.
Nothing of it stays: generators, process groups, hooks and variables are as before.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any


def rehearse() -> None:
    """Take the step, where torch is there and no GPU or TPU is: a device may be touched by its rank only.

    With torch_xla in the image it must not be: the autograd engine counts the devices at a process's first backward
    pass, once, and XLA's are not there before the rank opens them.
    """
    torch = sys.modules.get("torch")
    distributed = sys.modules.get("torch.distributed")
    if torch is None or distributed is None or not distributed.is_available() or torch.cuda.is_available():
        return
    if importlib.util.find_spec("torch_xla") is not None:
        return
    before, hook = torch.get_rng_state(), sys.excepthook
    # Where gloo would look up the host's name; what it found would be said to nobody.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        _step(torch, distributed)
    except Exception:  # noqa: BLE001, S110 whatever is wrong with this torch, the rank will say it
        pass
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        torch.set_rng_state(before)
        sys.excepthook = hook  # a process group's own puts the rank in front of each line, and stays


def _step(torch: Any, distributed: Any) -> None:
    """No matrix product: which instructions one uses, MKL decides at its first, by the rank's own variables."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model = torch.nn.PReLU()
    replica = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
    optimizer.zero_grad()
    replica(torch.ones(2)).sum().backward()
    optimizer.step()
