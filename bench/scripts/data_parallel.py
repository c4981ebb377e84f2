"""One rank of `bench/data_parallel.py`: the same model by DDP with gloo, by AllReduce, and without exchange, in turn.

`one rank` trains while the others rest; `side by side`, all train and say nothing to one another: what the ranks take
from each other by sharing caches and memory. `in step`, they only wait for one another after each step: what the slower
of them costs, in turn, and so the most that synchronous data parallelism can reach on this machine.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store
from torch.nn.parallel import DistributedDataParallel
from trainmaster_trainer.data import Batch
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.all_reduce import AllReduce
from trainmaster_trainer.task import Task
from typing_extensions import override

# Width of the layers, and samples of each rank: many parameters for few samples (25 MB of gradients for 0.15 GFLOP),
# and the reverse (1.6 MB for 5 GFLOP, and for 19).
MODELS = {"communication": (1024, 4), "computing": (256, 2048), "computing long": (256, 8192)}
STEPS = 3


class Layers(Task):
    """Six linear layers."""

    def __init__(self, width: int) -> None:
        self.width = width

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(*(nn.Linear(self.width, self.width) for _ in range(6)))

    @override
    def dataset(self) -> tuple[Tensor, Tensor]:
        raise NotImplementedError  # the bench hands over its batches itself

    @override
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs, targets)

    @override
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-3)


def by_hand(model: nn.Module, task: Layers, inputs: Tensor) -> Callable[[], object]:
    """A step as everybody writes it."""
    optimizer = task.optimizer(list(model.parameters()))

    def step() -> None:
        optimizer.zero_grad()
        task.loss(model(inputs), inputs).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def in_step(step: Callable[[], object]) -> Callable[[], object]:
    """The same, and a wait for all ranks."""

    def stepped() -> None:
        step()
        dist.barrier()

    return stepped


def measure(rounds: int, contestants: dict[str, Callable[[], object]], alone: str) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of a step, and of the core's time for it; of `alone`, on rank 0 while the others rest."""
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    core: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, step in contestants.items():
            dist.barrier()
            begin, begun = time.perf_counter(), time.process_time()
            if name != alone or dist.get_rank() == 0:
                for _ in range(STEPS):
                    step()
            if number:  # the first round warms up
                wall[name].append((time.perf_counter() - begin) / STEPS * 1000)
                core[name].append((time.process_time() - begun) / STEPS * 1000)
    return {"wall": wall, "core": core}


def main(answer: Path, rounds: int) -> None:
    """Measure all models."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    found = {}
    for name, (width, samples) in MODELS.items():
        group = Group(rank, world, rank, world, torch.device("cpu"), PrefixStore(name, _get_default_store()))
        task, inputs = Layers(width), torch.randn(samples, width)
        strategy = AllReduce(task, group, {})
        batch = Batch(inputs, inputs, samples, samples * world, 0.5, 1)
        contestants: dict[str, Callable[[], object]] = {
            "gloo": by_hand(DistributedDataParallel(task.model()), task, inputs),
            "trainmaster": partial(strategy.step, batch),
            "one rank": by_hand(task.model(), task, inputs),
            "side by side": by_hand(task.model(), task, inputs),
            "in step": in_step(by_hand(task.model(), task, inputs)),
        }
        found[name] = measure(rounds, contestants, alone="one rank")
        strategy.close()
    if rank == 0:
        answer.write_text(json.dumps(found))
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
