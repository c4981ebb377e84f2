"""By hand, as the torch tutorials have it: the transformer of tasks/text.py under FSDP2, DTensor or pipelining.

Started by torchrun. Arguments: which (FullySharded, Tensor, Pipeline), steps, the task's arguments as JSON, the batch
size, and the file in which rank 0 leaves the seconds of each step.
"""

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from trainmaster_trainer.tasks.text import Text


def loss_of(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The task's."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten().long())


def fully_sharded(model: Any) -> nn.Module:
    """FSDP2, layer by layer."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model.embedding, *model.blocks, model.head):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    result: nn.Module = model
    return result


def tensor(model: nn.Module) -> nn.Module:
    """Columns, then rows."""
    plan = {
        "embedding.characters": RowwiseParallel(input_layouts=Replicate()),
        "blocks.*.attention.query": ColwiseParallel(),
        "blocks.*.attention.key": ColwiseParallel(),
        "blocks.*.attention.value": ColwiseParallel(),
        "blocks.*.attention.out": RowwiseParallel(),
        "blocks.*.feed_forward.0": ColwiseParallel(),
        "blocks.*.feed_forward.2": RowwiseParallel(),
        "head.1": ColwiseParallel(output_layouts=Replicate()),
    }
    return parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), plan)


def stage(model: Any) -> nn.Module:
    """Half of the layers."""
    layers = [model.embedding, *model.blocks, model.head]
    middle = len(layers) // 2
    return nn.Sequential(*(layers[:middle] if dist.get_rank() == 0 else layers[middle:]))


def main() -> None:
    """Train on the task's text."""
    which, steps, batch_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    task = Text(**json.loads(sys.argv[3]))
    torch.manual_seed(0)
    model = {"FullySharded": fully_sharded, "Tensor": tensor, "Pipeline": stage}[which](task.model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.95))
    schedule = None
    if which == "Pipeline":
        part = PipelineStage(model, rank, world, torch.device("cpu"))
        schedule = Schedule1F1B(part, 4 * world, loss_fn=loss_of)
    inputs, targets = task.dataset()
    order = torch.randperm(len(inputs))
    share = batch_size // world if which == "FullySharded" else batch_size
    first = rank * share if which == "FullySharded" else 0
    times = [time.perf_counter()]
    for step in range(steps):
        mine = order[step * batch_size + first :][:share]
        optimizer.zero_grad()
        if schedule is None:
            loss_of(model(inputs[mine]), targets[mine]).backward()  # type: ignore[no-untyped-call]
        elif rank == 0:
            schedule.step(inputs[mine])
        else:
            schedule.step(target=targets[mine])
        optimizer.step()
        times.append(time.perf_counter())
    if rank == 0:
        seconds = [after - before for before, after in itertools.pairwise(times)]
        Path(sys.argv[5]).write_text(json.dumps(seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
