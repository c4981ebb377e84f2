"""A script whose model is FSDP2's: bfloat16 in the layers, AdamW, a scheduler."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from trainmaster_trainer import session

STEPS = 40


def main() -> None:
    """Train; with `--keep` the state is kept by `session.state`."""
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).cuda()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    kept = session.state(model=model, optimizer=optimizer, schedule=schedule) if "--keep" in sys.argv else None
    for step in range((kept.restore() if kept else 0) + 1, STEPS + 1):
        optimizer.zero_grad()
        inputs = torch.randn(32, 16, device="cuda")
        loss = nn.functional.mse_loss(model(inputs).float(), inputs.sum(dim=1, keepdim=True))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if kept:
            kept.step(step)
    torch.save({name: one.full_tensor().cpu() for name, one in model.state_dict().items()}, "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
