"""A Trainer of transformers, which logs each step and saves every five. Its last process dies after step 12.

With several processes each has its share of a batch, and the weights are those of one that has all of it.
"""

import copy
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


class Ordered(Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class Die(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        last = args.process_index == args.world_size - 1
        if last and state.global_step == 12 and os.environ["TRAINMASTER_ATTEMPT"] == "1":
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
    ddp_backend="gloo",
    optim="sgd",
    learning_rate=0.05,
    lr_scheduler_type="constant",
    max_grad_norm=0.0,
    report_to=[],
    disable_tqdm=True,
)
torch.manual_seed(1)
model = Line()
alone = copy.deepcopy(model.line)
trainer = Ordered(model, options, train_dataset=samples, eval_dataset=samples[:8], callbacks=[Report(), Die()])
begins = newest(folder)
trainer.train(resume_from_checkpoint=begins)
optimizer = torch.optim.SGD(alone.parameters(), lr=0.05)
for rows in (inputs.split(4 * int(os.environ["WORLD_SIZE"])) * 20)[:20]:
    optimizer.zero_grad()
    (alone(rows).squeeze(-1) - rows.sum(dim=1)).square().mean().backward()
    optimizer.step()
away = (alone.weight - model.line.weight).abs().max().item()
right = "RIGHT" if away < 1e-5 else f"WRONG by {away}"
print(right, trainer.state.global_step, "from", Path(begins).name if begins else None)
