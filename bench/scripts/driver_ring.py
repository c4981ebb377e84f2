"""All ranks of bench/driver_ring.py and links_series.py: forked from one process, each into its host's namespace."""

import ctypes
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from trainmaster_trainer.collectives.driver import Driver
from trainmaster_trainer.collectives.hierarchical import Hierarchical
from trainmaster_trainer.collectives.reducer import Reducer
from trainmaster_trainer.collectives.ring import Ring
from trainmaster_trainer.collectives.tensor_links import TensorLinks

_NETWORK = 0x40000000  # CLONE_NEWNET


def main(answer: Path, rounds: int, size: int, each: int, namespaces: list[str]) -> int:
    """Fork the ranks, `each` of them into every namespace, and wait for them; the exit code."""
    children = []
    world = each * len(namespaces)
    for rank in range(world):
        pid = os.fork()
        if not pid:
            _become_rank(rank, namespaces[rank // each], world, each, answer, rounds, size)
        children.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in children)


def _become_rank(*arguments: Any) -> None:
    code = 1
    try:
        rank, namespace, world, each, answer, rounds, size = arguments
        libc = ctypes.CDLL(None, use_errno=True)
        # Our end is the parent's: nothing may stay in a namespace.
        libc.prctl(1, 9)
        with Path(f"/run/netns/{namespace}").open() as entrance:
            assert not libc.setns(entrance.fileno(), _NETWORK), os.strerror(ctypes.get_errno())
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=120))
        found = _measure(_contestants(rank, world, each), rounds, size)
        if rank == 0:
            answer.write_text(json.dumps(found))
        dist.barrier()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _contestants(rank: int, world: int, each: int) -> dict[str, Reducer]:
    """Hierarchical only where hosts have several ranks: it adds up inside a host first, over loopback here."""
    found: dict[str, Reducer] = {
        "driver": Driver(TensorLinks(), range(world), rank),
        "ring": Ring(TensorLinks(), range(world), rank),
    }
    if each > 1:
        first = rank - rank % each
        inside = Driver(TensorLinks(), range(first, first + each), rank)
        between = Ring(TensorLinks(), range(0, world, each), rank) if rank == first and world > each else None
        found["hierarchical"] = Hierarchical(inside, between)
    return found


def _measure(contestants: dict[str, Reducer], rounds: int, size: int) -> dict[str, Any]:
    tensor = torch.ones(size // 4)
    before = {}
    for name, reducer in contestants.items():
        reducer.sum(torch.ones(1000))  # opens the connections
        before[name] = (reducer.traffic.sent, reducer.traffic.received)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, reducer in contestants.items():
            dist.barrier()
            begin = time.perf_counter()
            reducer.sum(tensor)
            dist.barrier()
            seconds[name].append(time.perf_counter() - begin)
    sent = {name: (one.traffic.sent - before[name][0]) // rounds for name, one in contestants.items()}
    received = {name: (one.traffic.received - before[name][1]) // rounds for name, one in contestants.items()}
    return {"seconds": seconds, "sent": sent, "received": received}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]))
