"""Measure how fast two ranks of one machine exchange tensors: all-reduces, layers spread over both."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from trainmaster.wire.measured import Exchange

from trainmaster_trainer.group import Group
from trainmaster_trainer.measure.sharding import measure_sharding

_SIZES = (4 << 10, 256 << 10, 4 << 20, 16 << 20)
_ROUNDS = 7


Exchanges = tuple[Exchange, ...]


def measure_exchange() -> tuple[Exchanges, Exchanges]:
    """Measure all-reduces, and what FullySharded adds to a layer (`sharding.py`); return nothing of either on failure.

    Two forked ranks do it; call it before this process runs any operation of torch, which would start threads.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=_rank, args=(rank, folder, theirs), daemon=True) for rank in range(2)]
        for process in ranks:
            process.start()
        theirs.close()
        try:
            reduced, sharded = (tuple(Exchange(*pair) for pair in pairs) for pairs in json.loads(ours.recv_bytes()))
        except EOFError:
            return (), ()  # the ranks have said why on stderr; without figures nothing is predicted
        finally:
            for process in ranks:
                process.join()
    return reduced, sharded


def _rank(rank: int, folder: str, answer: Connection) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder, "store")), 2)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    reduced = [(size, _time(size)) for size in _SIZES]
    group = Group(rank, 2, rank, 2, torch.device("cpu"), store)
    sharded = [(each.size, each.seconds) for each in measure_sharding(group)]
    if rank == 0:
        answer.send_bytes(json.dumps([reduced, sharded]).encode())
    dist.destroy_process_group()


def _time(size: int) -> float:
    tensor = torch.zeros(size // 4)
    taken = []
    for _ in range(_ROUNDS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        taken.append(time.perf_counter() - began)
    return median(taken[1:])
