"""One rank of `bench/all_reduce.py`: shared memory and gloo in turn on the same tensors."""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store
from trainmaster_trainer.collectives.choose import choose_reducer
from trainmaster_trainer.collectives.native import Native
from trainmaster_trainer.group import Group


def main(answer: Path, rounds: int) -> None:
    """Measure, and write down microseconds by contestant and size."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    group = Group(rank, world, rank, world, torch.device("cpu"), PrefixStore("bench", _get_default_store()))
    memory = choose_reducer("Native", group)
    assert memory
    contestants = {"gloo": Native(), "memory": memory}
    micros: dict[str, dict[int, list[float]]] = {name: {} for name in contestants}
    for size in (4096, 65536, 1 << 20, 1 << 25):
        tensor = torch.full((size // 4,), 1e-30)
        times = max(3, min(200, (1 << 23) // size))
        for number in range(rounds + 1):
            for name, reducer in contestants.items():
                dist.barrier()
                begin = time.perf_counter()
                for _ in range(times):
                    reducer.sum(tensor)
                if number:  # the first round warms up
                    micros[name].setdefault(size, []).append((time.perf_counter() - begin) / times * 1e6)
    if rank == 0:
        answer.write_text(json.dumps(micros))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
