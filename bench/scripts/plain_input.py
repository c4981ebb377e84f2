"""The peer of the measurement `input`: a plain loop over torch's DataLoader. Prints when each step ended, as JSON."""

import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader

from bench.tasks import SlowSamples


def main() -> None:
    """Train the same model with the same samples, shuffled by torch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["RANK"] = "0"  # which the task asks for
    task = SlowSamples(options.seconds)
    model = task.model()
    optimizer = task.optimizer(list(model.parameters()))
    loader = DataLoader(task.dataset(), options.batch, shuffle=True, drop_last=True, num_workers=options.workers)
    times: list[float] = []
    while len(times) < options.steps:
        for inputs, targets in loader:
            optimizer.zero_grad()
            task.loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            times.append(time.time())
            if len(times) == options.steps:
                break
    print(json.dumps(times))


if __name__ == "__main__":
    main()
