"""A script in the manner of torchtitan: FSDP2, and checkpoints of its own by torch.distributed.checkpoint.

Trainmaster sees its steps, and starts it again from the newest of its checkpoints that is whole.
"""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from trainmaster_trainer import session


class TrainState:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = state["step"]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
state = TrainState(model, torch.optim.AdamW(model.parameters()))
folder = Path(os.environ["TRAINMASTER_CHECKPOINTS"]) / "titan"
whole = sorted(path.parent for path in folder.glob("step-*/.metadata"))  # which is written last
if whole:
    dcp.load({"app": state}, checkpoint_id=whole[-1])
begins = state.step
session.report(step=state.step, total=20)
while state.step < 20:
    loss = model(torch.ones(2, 8) * state.step).square().mean()
    loss.backward()
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.step += 1
    session.report(step=state.step, loss=loss.item())
    if state.step % 5 == 0:
        dcp.save({"app": state}, checkpoint_id=folder / f"step-{state.step:06}")
    if state.step == 12 and os.environ["TRAINMASTER_ATTEMPT"] == "1" and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
print("RIGHT", state.step, "from", begins)
dist.destroy_process_group()
