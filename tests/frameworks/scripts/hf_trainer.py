"""A Trainer of transformers, which logs each step and saves every five. Its first process dies after step 12."""

import os
import signal
from pathlib import Path

import torch
from trainmaster_trainer.adapters.transformers import Report, newest
from transformers import Trainer, TrainerCallback, TrainingArguments


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        guess = self.line(x).squeeze(-1)
        return {"loss": (guess - labels).square().mean(), "logits": guess}


class Die(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 12 and os.environ["TRAINMASTER_ATTEMPT"] == "1":
            (folder / "checkpoint-12").mkdir()  # as one that is half written
            os.kill(os.getpid(), signal.SIGKILL)


folder = Path(os.environ["TRAINMASTER_CHECKPOINTS"]) / "trainer"
inputs = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
samples = [{"x": one, "labels": one.sum()} for one in inputs]
options = TrainingArguments(
    str(folder),
    max_steps=20,
    per_device_train_batch_size=4,
    logging_steps=1,
    save_steps=5,
    eval_strategy="steps",
    eval_steps=10,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(Line(), options, train_dataset=samples, eval_dataset=samples[:8], callbacks=[Report(), Die()])
begins = newest(folder)
trainer.train(resume_from_checkpoint=begins)
print("RIGHT", trainer.state.global_step, "from", Path(begins).name if begins else None)
