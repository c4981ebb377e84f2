"""A user's script as for torchrun: DDP over gloo, found by env://. Arguments: steps, seconds per step."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from witness import say  # type: ignore[import-not-found]

say("begin", restart=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if step == 0:
        say("step", world=dist.get_world_size())
    time.sleep(float(sys.argv[2]))
total = torch.ones(1)
dist.all_reduce(total)
say("end", total=int(total))
dist.destroy_process_group()
