"""The training of train.py, with one line that says to Trainmaster how far it is."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from trainmaster_trainer import session

EPOCHS = int(os.environ.get("EPOCHS", "20"))
# TRAINMASTER_CHECKPOINTS outlives this process, and the pod too where the job names a storage; anywhere else, the
# current folder will do.
CHECKPOINT = Path(os.environ.get("TRAINMASTER_CHECKPOINTS", ".")) / "report.pt"


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
    first = 0
    # Rank 0 keeps the checkpoint and tells the others, who may not see its disk.
    found = [torch.load(CHECKPOINT, weights_only=True) if dist.get_rank() == 0 and CHECKPOINT.exists() else None]
    dist.broadcast_object_list(found, src=0)
    if found[0]:
        model.load_state_dict(found[0]["model"])
        optimizer.load_state_dict(found[0]["optimizer"])
        first = found[0]["epoch"] + 1

    replica = DistributedDataParallel(model)
    samples = spirals(4096)
    sampler = DistributedSampler(samples)
    loader = DataLoader(samples, batch_size=64, sampler=sampler)
    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)
        for batch, (points, labels) in enumerate(loader, start=1):
            loss = nn.functional.cross_entropy(replica(points.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            session.report(step=epoch * len(loader) + batch, total=EPOCHS * len(loader), loss=loss.item())
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
            CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)  # on a claim nobody has made it yet
            temporary = CHECKPOINT.with_suffix(".tmp")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary)
            temporary.replace(CHECKPOINT)

    if dist.get_rank() == 0:
        points, labels = samples.tensors
        with torch.no_grad():
            accuracy = (model(points.to(device)).argmax(1).cpu() == labels).float().mean()
        print(f"accuracy {accuracy:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
