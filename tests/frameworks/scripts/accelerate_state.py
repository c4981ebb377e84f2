"""A loop of accelerate, whose objects `session.state` keeps. One process kills itself after step 12 of 20.

The order of samples is that of torchdata's loader, in the midst of a pass over them.
"""

import os
import signal

import torch
from accelerate import Accelerator
from torchdata.stateful_dataloader import StatefulDataLoader
from trainmaster_trainer import session

accelerator = Accelerator()
torch.manual_seed(accelerator.process_index)
inputs = torch.arange(80.0).reshape(80, 1) / 80
loader = StatefulDataLoader(inputs, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
model = torch.nn.Linear(1, 1)
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
# accelerate steps a schedule once for each process
schedule = accelerator.prepare(torch.optim.lr_scheduler.StepLR(optimizer, 5))
state = session.state(model=model, optimizer=optimizer, schedule=schedule, loader=loader)
step = done = state.restore()
seen = open(f"seen-{os.environ['RANK']}", "a")
for batch in loader:
    step += 1
    with accelerator.autocast():
        loss = (model(batch) - batch).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(step, *[round(float(one) * 80) for one in batch[:, 0]], file=seen, flush=True)
    session.report(step=step, total=20, loss=loss.item())
    state.step(step)
    if step == 12 and os.environ["TRAINMASTER_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
told = [accelerator.num_processes, accelerator.mixed_precision, os.environ.get("OMP_NUM_THREADS")]
print("RIGHT", step, "from", done, *told, f"{schedule.get_last_lr()[0]:.0e}")
