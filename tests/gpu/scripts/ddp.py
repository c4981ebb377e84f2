"""A script as strangers write them: DDP over NCCL, dropout, autocast with a loss scale, a loss from the GPU."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainmaster_trainer import session
from trainmaster_trainer.session import SessionState

STEPS = 40


def main() -> None:
    """Train; with `--keep` the state is kept by `session.state`."""
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(1 + rank)
    total = torch.tensor([float(rank + 1)], device=device)
    dist.all_reduce(total)
    world = dist.get_world_size()
    assert total.item() == world * (world + 1) / 2, "NCCL added up something else"
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.3), nn.Linear(64, 1)).to(device)
    replica = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.AdamW(replica.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda")
    first, state = 0, None
    if "--keep" in sys.argv:
        kept: SessionState = session.state(model=replica, optimizer=optimizer, scaler=scaler)
        first, state = kept.restore(), kept
    Path(f"rank-{rank}-{os.environ.get('TRAINMASTER_ATTEMPT', '')}.txt").write_text(str(os.getpid()))
    for step in range(first + 1, STEPS + 1):
        optimizer.zero_grad()
        inputs = torch.randn(32, 16, device=device)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.mse_loss(replica(inputs).float(), inputs.sum(dim=1, keepdim=True))
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        if state is not None:
            session.report(step=step, total=STEPS, loss=loss.item())
            state.step(step)
    if rank == 0:
        torch.save({name: one.cpu() for name, one in replica.module.state_dict().items()}, "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
