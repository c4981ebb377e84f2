"""A user's script, untouched by us: DDP over gloo by env://. It says what it does in JSON lines."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def say(**what):
    line = json.dumps({"time": time.monotonic(), "rank": int(os.environ["RANK"]), "pid": os.getpid(), **what})
    with open(sys.argv[1], "a") as file:
        file.write(line + "\n")


say(what="begin", restart=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
dist.init_process_group("gloo")
say(what="group")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[2])):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if step == 0:
        say(what="step", modules=len(sys.modules))
    time.sleep(float(sys.argv[3]))
say(what="end", loss=float(loss))
dist.destroy_process_group()
