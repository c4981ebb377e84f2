"""Train a line by Ray Train on all nodes, and compare it with one process. `ray.init()` is told nothing."""

import os
import tempfile

import ray
import ray.train
import torch
import torch.distributed
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

STEPS = 30


def data():
    """The same for all."""
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    return x, x.sum(1, keepdim=True), torch.nn.Linear(8, 1)


def loop():
    """What each of Ray Train's workers does."""
    x, y, model = data()
    rank, size = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
    for _ in range(STEPS):
        optimizer.zero_grad()
        ((model(x[mine]) - y[mine]) ** 2).mean().backward()
        optimizer.step()
    where = torch.tensor([float(os.environ["TRAINMASTER_INDEX"]) + 1])
    torch.distributed.all_reduce(where)
    figures = {"total": where.item(), "weights": model.module.weight.tolist()}
    with tempfile.TemporaryDirectory() as folder:
        kept = Checkpoint.from_directory(folder) if rank == 0 else None  # without one, figures are not kept
        ray.train.report(figures, checkpoint=kept)


ray.init()
trained = TorchTrainer(
    loop,
    scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
    torch_config=TorchConfig(backend="gloo"),
    run_config=RunConfig(storage_path=os.environ["TRAINMASTER_CHECKPOINTS"]),
).fit()
x, y, alone = data()
plain = torch.optim.SGD(alone.parameters(), 0.05)
for _ in range(STEPS):
    plain.zero_grad()
    ((alone(x) - y) ** 2).mean().backward()
    plain.step()
away = (torch.tensor(trained.metrics["weights"]) - alone.weight).abs().max().item()
print(
    f"RIGHT nodes={len(ray.nodes())} total={trained.metrics['total']:g}" if away < 1e-5 else f"WRONG by {away}",
    flush=True,
)
