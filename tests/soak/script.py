"""The script of the soak campaign: a plain training loop that saves by itself, as a user has it who never wrote a Task.

It draws in dropout and in its DataLoader's worker processes; a step's random numbers follow from its number and rank,
so whoever goes on from the file that it saved ends with the model of a calm run.
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

CHECKPOINT = Path(os.environ["TRAINMASTER_CHECKPOINTS"]) / "script.pt"
BATCH, FEATURES = 6, 5


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """The samples of one rank from a step on: sample `index` draws from a generator of its own."""

    def __init__(self, rank: int, first: int, steps: int) -> None:
        self.rank, self.first, self.count = rank, first, (steps - first) * BATCH

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1000 * (self.first * BATCH + index) + self.rank)
        inputs = torch.randn(FEATURES, generator=generator)
        return inputs, (inputs.sum() > 0).long()


def main() -> None:
    """Train from the newest save on, and write the model's hash."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--loaders", type=int, default=0)
    parser.add_argument("--every", type=int, default=5)
    options = parser.parse_args()
    note = Path("ranks") / str(os.getpid())
    note.parent.mkdir(exist_ok=True)
    note.write_text(f"{os.environ['RANK']} ")
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Dropout(0.3), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found = [torch.load(CHECKPOINT) if dist.get_rank() == 0 and CHECKPOINT.exists() else None]
    dist.broadcast_object_list(found, src=0)
    first = 0
    if found[0]:
        model.load_state_dict(found[0]["model"])
        optimizer.load_state_dict(found[0]["optimizer"])
        first = found[0]["step"]
    # Of three ranks and more, it adds up in another order in the first step of each process.
    is_wrapped = dist.get_world_size() <= 2
    replica = DistributedDataParallel(model) if is_wrapped else model
    samples = Samples(dist.get_rank(), first, options.steps)
    # A worker process that is stopped is noticed by the loader itself: the user has said how long to wait.
    loader = DataLoader(samples, BATCH, num_workers=options.loaders, timeout=6 if options.loaders else 0)
    for step, (inputs, labels) in enumerate(loader, start=first + 1):
        torch.manual_seed(step * 100 + dist.get_rank())
        time.sleep(0.02)
        loss = nn.functional.cross_entropy(replica(inputs), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if not is_wrapped:
            for weight in model.parameters():
                assert weight.grad is not None
                dist.all_reduce(weight.grad)
        optimizer.step()
        if dist.get_rank() == 0 and (step % options.every == 0 or step == options.steps):
            save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    if dist.get_rank() == 0:
        weights = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
        Path("model.sha256").write_text(hashlib.sha256(weights).hexdigest())
    dist.destroy_process_group()


def save(state: dict[str, object]) -> None:
    """Save whole or not at all."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, CHECKPOINT.with_suffix(".tmp"))
    CHECKPOINT.with_suffix(".tmp").replace(CHECKPOINT)


if __name__ == "__main__":
    main()
