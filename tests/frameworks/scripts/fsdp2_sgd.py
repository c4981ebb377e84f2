"""FSDP2: each process has a part of each weight, and checkpoints are torch.distributed.checkpoint's."""

import line
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = line.model()
fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (size,)))
here = sum(parameter.to_local().numel() for parameter in model.parameters())
optimizer = torch.optim.SGD(model.parameters(), line.RATE)
whole = sorted(path.parent for path in line.FOLDER.glob("step-*/.metadata"))  # which is written last
first = 0
if whole:
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=whole[-1])
    model.load_state_dict(state["model"])
    first = int(whole[-1].name.removeprefix("step-"))
x, y = line.share(rank, size)
for number in range(first, line.STEPS):
    line.maybe_die(number, rank == 1)
    optimizer.zero_grad()
    line.loss_of(model(x), y).backward()
    optimizer.step()
    if (number + 1) % line.SAVE_EVERY == 0:
        dcp.save({"model": model.state_dict()}, checkpoint_id=line.FOLDER / f"step-{number + 1}")
weights = [parameter.full_tensor().detach() for parameter in model.parameters()]
line.tell(weights, first, here=here, of=sum(weight.numel() for weight in weights))
dist.destroy_process_group()
