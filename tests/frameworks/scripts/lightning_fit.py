"""A Trainer of Lightning, which saves every five steps. Its first process kills itself after step 12."""

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
        if trainer.global_step == 12 and os.environ["TRAINMASTER_ATTEMPT"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)


folder = Path(os.environ["TRAINMASTER_CHECKPOINTS"]) / "lightning"
inputs = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs), batch_size=4)
trainer = Trainer(
    max_steps=20,
    accelerator="cpu",
    devices=1,
    logger=False,
    log_every_n_steps=1,
    enable_progress_bar=False,
    callbacks=[Report(), ModelCheckpoint(folder, every_n_train_steps=5, save_top_k=-1), Die()],
)
begins = newest(folder)
trainer.fit(Line(), loader, ckpt_path=begins)
print("RIGHT", trainer.global_step, "from", Path(begins).name if begins else None)
