"""Train a line with Horovod's optimizer, and compare it with one process. Told by nothing but the environment."""

import os
import signal

import horovod.torch as hvd
import torch

STEPS = 50
hvd.init()
rank, size = hvd.rank(), hvd.size()
total = hvd.allreduce(torch.tensor([rank + 1.0]), op=hvd.Sum).item()
torch.manual_seed(0)
x = torch.randn(64, 8)
y = x.sum(1, keepdim=True)
model, alone = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
alone.load_state_dict(model.state_dict())
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.05), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), 0)
mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
for number in range(STEPS):
    if number == 20 and rank == 1 and os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("DIE_IN_ATTEMPT"):
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    ((model(x[mine]) - y[mine]) ** 2).mean().backward()
    optimizer.step()

plain = torch.optim.SGD(alone.parameters(), 0.05)
for _ in range(STEPS):
    plain.zero_grad()
    ((alone(x) - y) ** 2).mean().backward()
    plain.step()
away = (model.weight - alone.weight).abs().max().item()
slot = f"local={hvd.local_rank()}/{hvd.local_size()} cross={hvd.cross_rank()}/{hvd.cross_size()}"
print(f"RIGHT rank={rank}/{size} {slot} total={total:g}" if away < 1e-5 else f"WRONG by {away}", flush=True)
