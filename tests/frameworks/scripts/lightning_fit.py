"""A Trainer of Lightning, which saves every five steps. Its last process kills itself after step 12.

With several processes each has its share of a batch, and the weights are those of one that has all of it.
"""

import copy
import os
import signal
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from trainmaster_trainer.adapters.lightning import Report, newest


class Line(LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        (x,) = batch
        loss = (self.line(x).squeeze(-1) - x.sum(dim=1)).square().mean()
        self.log("double", 2 * loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Die(Callback):
    def on_train_batch_end(self, trainer, *_):
        last = trainer.global_rank == trainer.world_size - 1
        if last and trainer.global_step == 12 and os.environ["TRAINMASTER_ATTEMPT"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)


size = int(os.environ["WORLD_SIZE"])
folder = Path(os.environ["TRAINMASTER_CHECKPOINTS"]) / "lightning"
# The batches of all are alike: Lightning begins its loader anew when it goes on within an epoch.
rows = torch.randn(4 * size, 4, generator=torch.Generator().manual_seed(0))
inputs = rows.repeat(20, 1)
rank = int(os.environ["RANK"])
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs[rank::size]), batch_size=4)
trainer = Trainer(
    max_steps=20,
    accelerator="cpu",
    strategy="ddp" if size > 1 else "auto",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    logger=False,
    log_every_n_steps=1,
    enable_progress_bar=False,
    use_distributed_sampler=False,  # Lightning's own shuffles
    callbacks=[Report(), ModelCheckpoint(folder, every_n_train_steps=5, save_top_k=-1), Die()],
)
begins = newest(folder)
torch.manual_seed(1)
model = Line()
alone = copy.deepcopy(model.line)
trainer.fit(model, loader, ckpt_path=begins)
optimizer = torch.optim.SGD(alone.parameters(), lr=0.05)
for _ in range(20):
    optimizer.zero_grad()
    (alone(rows).squeeze(-1) - rows.sum(dim=1)).square().mean().backward()
    optimizer.step()
away = (alone.weight - model.line.weight).abs().max().item()
right = "RIGHT" if away < 1e-5 else f"WRONG by {away}"
print(right, trainer.global_step, "from", Path(begins).name if begins else None)
