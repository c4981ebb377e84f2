"""Tasks whose samples come from torchdata and from Hugging Face's datasets. LIBRARIES is where these are installed."""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from trainmaster_trainer.task import Task

sys.path.append(os.environ["LIBRARIES"])  # at the end: torch is that of the trainer
SAMPLES = 23


class Numbers(Dataset):
    """Samples by number, with noise."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return torch.tensor([index / SAMPLES, float(torch.rand(()))]), torch.tensor([index / SAMPLES])


def loader(**options):
    """A loader of torchdata that gives samples one by one."""
    from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415 other kinds do without

    return StatefulDataLoader(Numbers(), batch_size=None, **options)


def table(streaming):
    """The lines of two local files, as Hugging Face's datasets reads them."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(Path("hugging").resolve())}
    from datasets import load_dataset  # noqa: PLC0415 likewise, and after its variables

    files = []
    for part in range(2):
        files.append(Path(f"part-{part}-{os.getpid()}.jsonl"))
        numbers = range(part * 12, min(SAMPLES, part * 12 + 12))
        files[-1].write_text("".join(json.dumps({"x": n / SAMPLES, "y": n / SAMPLES}) + "\n" for n in numbers))
    return load_dataset("json", data_files=[*map(str, files)], split="train", streaming=streaming)


KINDS = {
    "loader": loader,
    "shuffled": lambda: loader(shuffle=True),
    "streaming": lambda: table(True),
    "table": lambda: table(False),
}


class OfLibraries(Task):
    """Learns a line from one of KINDS."""

    def __init__(self, kind):
        self.kind = kind

    def model(self):
        return nn.Linear(2, 1)

    def dataset(self):
        return KINDS[self.kind]()

    def collate(self, samples):
        """A row of a table is a dict."""
        rows = [(torch.tensor([one["x"], 1.0]), torch.tensor([one["y"]])) if "x" in one else one for one in samples]
        return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])

    def loss(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)
