"""Meet the other ranks of a script: a group of our own beside the script's, and whether all ranks call.

The script opens torch's default group, for the devices that it has; ours is for a few numbers on the CPU and for what a
checkpoint sends. Small values and signs of presence go through the store that the agent serves.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from trainmaster_trainer.agent import errors
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import RESULT_TIMEOUT, Group
from trainmaster_trainer.settings import Settings

_LOOK = timedelta(seconds=15)  # then it is said who is awaited; whether that is a hang is the agent's to decide


def meet(settings: Settings) -> Group:
    """Return the group of all ranks of the script. All of them call it.

    Raises:
        ConfigurationError: there are several ranks, and torch's default group is not that of all of them.
    """
    cpu = torch.device("cpu")
    if settings.world_size == 1:
        return Group(0, 1, 0, 1, cpu, dist.HashStore())  # type: ignore[attr-defined]
    if not dist.is_initialized():
        raise ConfigurationError(
            f"session.state: {settings.world_size} ranks keep their state together. Call "
            "torch.distributed.init_process_group() before restore()."
        )
    if (dist.get_rank(), dist.get_world_size()) != (settings.rank, settings.world_size):
        raise ConfigurationError(
            f"session.state: torch's default process group has rank {dist.get_rank()} of {dist.get_world_size()}, and "
            f"this is rank {settings.rank} of {settings.world_size}. Let init_process_group() take both from the "
            "environment."
        )
    server = dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=RESULT_TIMEOUT
    )
    store = PrefixStore(f"trainmaster/session/{settings.run_key}", server)
    await_all("restore()", store, settings.rank, settings.world_size)
    processes: Any = dist.new_group(backend="gloo", timeout=RESULT_TIMEOUT)
    return Group(
        settings.rank,
        settings.world_size,
        settings.local_rank,
        settings.local_world_size,
        cpu,
        store,
        settings.shared_memory,
        RESULT_TIMEOUT,
        processes,
    )


def await_all(what: str, store: Store, rank: int, ranks: int) -> None:
    """Wait until all ranks have come to `what`, and say for whom this one waits."""
    store.set(f"{what}/{rank}", "here")
    said: list[int] = []
    while True:
        try:
            store.wait([f"{what}/{other}" for other in range(ranks)], _LOOK)
        except dist.DistStoreError:
            missing = [other for other in range(ranks) if not store.check([f"{what}/{other}"])]
            if missing and missing != said:
                said = missing
                errors.say(
                    f"trainmaster: session.state: rank {rank} waits in {what} for rank {', '.join(map(str, missing))}. "
                    "Every rank must call it, after the same step."
                )
        else:
            return
