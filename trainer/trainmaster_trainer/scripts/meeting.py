"""Meet the other ranks of a script: a group of our own beside the script's, and whether all ranks call.

The script opens torch's default group, for the devices that it has; ours is for a few numbers on the CPU and for what a
checkpoint sends. Small values and signs of presence go through the store that the agent serves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from trainmaster_trainer.agent import rank_errors
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import RESULT_TIMEOUT, Group
from trainmaster_trainer.settings import Settings

_LOOK = timedelta(seconds=15)  # then it is said who is awaited
RESTORE_SECONDS = 1800.0  # that a rank may come later to restore(): it may prepare data. As long as torch waits
_FAREWELL = timedelta(seconds=5)  # for the connection of a rank that ends: the store may have ended before
_LEFT = "left"  # what a rank leaves in the store when it ends
STEP_SECONDS = 300.0  # the same for its first step(), as all ranks have taken that step together


def meet(settings: Settings) -> Group:
    """Return the group of all ranks of the script. All of them call it.

    Raises:
        ConfigurationError: torch's default group is not that of all ranks.
    """
    cpu = torch.device("cpu")
    if settings.world_size == 1:
        if dist.is_initialized() and dist.get_world_size() > 1:
            raise ConfigurationError(
                f"session.state: torch's default process group has {dist.get_world_size()} processes, and the job has "
                "1 rank, whose state alone would be kept. Let the ranks be these processes: set spec.workers.replicas "
                f"to {dist.get_world_size()}, or spec.workers.gpus where there are GPUs, and let each rank call the "
                "training function itself, without torch.multiprocessing."
            )
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
    store = _store(settings, RESULT_TIMEOUT)
    await_all("restore()", store, settings.rank, settings.world_size, RESTORE_SECONDS)
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


def await_all(what: str, store: Store, rank: int, ranks: int, seconds: float) -> None:
    """Wait until all ranks have come to `what`, and say for whom this one waits.

    Raises:
        ConfigurationError: one of them has ended, or does not come within so many seconds.
    """
    store.set(f"{what}/{rank}", "here")
    since, told = time.monotonic(), False
    while not _are_there(store, [f"{what}/{other}" for other in range(ranks)]):
        missing = [other for other in range(ranks) if not store.check([f"{what}/{other}"])]
        gone = [other for other in missing if store.check([f"{_LEFT}/{other}"])]
        late = missing if time.monotonic() - since > seconds else []
        if gone or late:
            how = "has ended without calling it" if gone else f"has not called it within {seconds:.0f} s"
            raise ConfigurationError(
                f"session.state: rank {rank} waits in {what}, and rank {(gone or late)[0]} {how}. Call it on every "
                "rank, not on rank 0 alone."
            )
        if missing and not told:
            told = True
            rank_errors.say(
                f"trainmaster: session.state: rank {rank} waits in {what} for rank {', '.join(map(str, missing))}. "
                "Every rank must call it."
            )


@contextmanager
def telling_who_has_left(n: int, store: Store, rank: int, ranks: int) -> Iterator[None]:
    """Say who has ended, where this rank cannot go on without it: it may have had fewer batches."""
    try:
        yield
    except RuntimeError:  # of gloo, whose words name an address
        with suppress(dist.DistError):
            gone = [other for other in range(ranks) if store.check([f"{_LEFT}/{other}"])]
            if gone:
                rank_errors.say(
                    f"trainmaster: session.state: rank {rank} calls step({n}), and rank {gone[0]} has ended. Take as "
                    "many steps on every rank, also where one has fewer batches."
                )
        raise


def leave(store: Store, rank: int) -> None:
    """Tell the other ranks that this one has ended."""
    with suppress(dist.DistError):  # theirs may have ended as well, and the store
        store.set(f"{_LEFT}/{rank}", "gone")


def leave_unmet(settings: Settings) -> None:
    """Tell ranks that may wait in restore() that this one has ended, and never came to it."""
    if settings.world_size > 1:
        with suppress(dist.DistError):
            leave(_store(settings, _FAREWELL), settings.rank)


def _store(settings: Settings, timeout: timedelta) -> Store:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    server = dist.TCPStore(address, port, is_master=False, timeout=timeout)  # type: ignore[attr-defined]
    return PrefixStore(f"trainmaster/session/{settings.run_key}", server)


def _are_there(store: Store, keys: list[str]) -> bool:
    try:
        store.wait(keys, _LOOK)
    except dist.DistStoreError:  # not in this time
        return False
    return True
