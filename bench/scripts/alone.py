"""Two trainers' computing without any exchange: as fast as any parameter server could be at the most.

Arguments: steps, hidden width. Prints steps/s. The model is that of rpc_parameter_server.py.
"""

import sys
import time

import torch
from rpc_parameter_server import make_model  # type: ignore[import-not-found]  # its neighbour in this folder
from torch import nn


def main() -> None:
    """Forward and backward, again and again."""
    steps, width = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    model = make_model(width)
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
    begun = 0.0
    for step in range(steps):
        if step == steps // 10:
            begun = time.perf_counter()
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    print((steps - steps // 10) / (time.perf_counter() - begun), flush=True)


if __name__ == "__main__":
    main()
