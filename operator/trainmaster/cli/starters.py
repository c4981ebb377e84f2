"""Hold the files that `trainmaster init` writes: a small training that works as it is, to be changed into one's own."""

TASK_JOB = """apiVersion: trainmaster.dev/v1
kind: TrainingJob
metadata: {{name: {name}}}
spec:
  strategy: {{type: AllReduce}}      # one word for how to train; trainmaster advise says which pays
  training:
    task: train:Rings              # the class in train.py
    arguments: {{width: 32}}         # of its __init__; change them by --set training.arguments.width=64
    steps: 300
    globalBatchSize: 256
    evaluateEverySteps: 100
  workers: {{replicas: 2}}           # gpus: 1 for one device each
{storage}"""

SCRIPT_JOB = """apiVersion: trainmaster.dev/v1
kind: TrainingJob
metadata: {{name: {name}}}
spec:
  strategy: {{type: AllReduce}}
  training:
    command: [python, train.py]    # with the variables of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, ...
  workers: {{replicas: 2}}           # gpus: 1 for one process and one device each
{storage}"""

STORAGE = """  # Without a storage, a model on a cluster is gone with its pods. With a claim of that name:
  # checkpoint: {storage: {persistentVolumeClaim: {claimName: models}}}
"""

TASK = '''"""A task to begin with: is a point of the plane inside the unit circle?"""

import torch
from torch import nn
from trainmaster_trainer.task import Task


def points_of(seed, count):
    """Return points, and whether each is inside."""
    points = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 3 - 1.5
    return points, (points.norm(dim=1) < 1).long()


class Rings(Task):
    """The arguments of __init__ are spec.training.arguments."""

    def __init__(self, width: int = 32, lr: float = 0.01) -> None:
        self.width = width
        self.lr = lr

    def model(self):
        return nn.Sequential(nn.Linear(2, self.width), nn.ReLU(), nn.Linear(self.width, 2))

    def dataset(self):
        return points_of(seed=0, count=4096)

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def optimizer(self, parameters):
        return torch.optim.Adam(parameters, lr=self.lr)

    # What follows may be left out.

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(dim=1) == targets).float().mean()}

    def validation_dataset(self):
        return points_of(seed=1, count=1024)
'''

SCRIPT = '''"""A script to begin with, which trains by DistributedDataParallel and goes on after a restart."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from trainmaster_trainer import session

EPOCHS = int(os.environ.get("EPOCHS", "10"))


def points_of(seed, count):
    """Return points of the plane, and whether each is inside the unit circle."""
    points = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 3 - 1.5
    return TensorDataset(points, (points.norm(dim=1) < 1).long())


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    samples = points_of(seed=0, count=4096)
    sampler = DistributedSampler(samples)
    loader = DataLoader(samples, batch_size=128, sampler=sampler, generator=torch.Generator())

    state = session.state(model=replica, optimizer=optimizer)
    done = state.restore()  # steps that were taken before a restart
    for epoch in range(done // len(loader), EPOCHS):
        sampler.set_epoch(epoch)
        for step, (points, inside) in enumerate(loader, start=epoch * len(loader) + 1):
            if step <= done:
                continue
            loss = nn.functional.cross_entropy(replica(points.to(device)), inside.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            session.report(step=step, total=EPOCHS * len(loader), loss=loss.item())
            state.step(step)
    if dist.get_rank() == 0:
        print(f"trained {EPOCHS} epochs, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''
