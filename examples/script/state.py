"""The training of train.py, whose state Trainmaster keeps: no checkpoint of its own, and no completed step is lost."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from trainmaster_trainer import session

EPOCHS = int(os.environ.get("EPOCHS", "20"))


def spirals(count: int) -> TensorDataset:
    """Two spirals that no line can part."""
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(count) % 2
    radius = torch.rand(count, generator=generator).sqrt()
    angle = radius * 9 + label * torch.pi
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return TensorDataset(points + torch.randn(count, 2, generator=generator) * 0.02, label)


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    replica = DistributedDataParallel(model)
    samples = spirals(4096)
    sampler = DistributedSampler(samples)
    # A generator of its own: else each new pass over the loader draws from that of dropout.
    loader = DataLoader(samples, batch_size=64, sampler=sampler, generator=torch.Generator())
    state = session.state(model=replica, optimizer=optimizer)
    done = state.restore()  # how many steps; 0 at first, and outside of Trainmaster
    for epoch in range(done // len(loader), EPOCHS):
        sampler.set_epoch(epoch)
        for step, (points, labels) in enumerate(loader, start=epoch * len(loader) + 1):
            if step <= done:
                continue  # it was taken before the restart
            loss = nn.functional.cross_entropy(replica(points.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            session.report(step=step, total=EPOCHS * len(loader), loss=loss.item())
            state.step(step)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    if dist.get_rank() == 0:
        points, labels = samples.tensors
        with torch.no_grad():
            accuracy = (model(points.to(device)).argmax(1).cpu() == labels).float().mean()
        print(f"accuracy {accuracy:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
