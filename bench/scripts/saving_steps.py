"""The script of steps.py with a checkpoint of its own, as people write it; the same arguments.

Every 20 steps rank 0 saves model and optimizer by torch.save, under another name first.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from steps import main  # type: ignore[import-not-found]

EVERY = 20


class Own:
    """Own has the two methods that the script calls of what keeps its state."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._path = Path(sys.argv[1]) / "checkpoint.pt"

    def restore(self) -> int:
        """Load the newest checkpoint, if there is one."""
        if not self._path.exists():
            return 0
        saved = torch.load(self._path)
        self._model.load_state_dict(saved["model"])
        self._optimizer.load_state_dict(saved["optimizer"])
        return int(saved["step"])

    def step(self, n: int) -> None:
        """Save after every so many steps."""
        if n % EVERY or dist.get_rank():
            return
        unfinished = self._path.with_suffix(".new")
        state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict(), "step": n}
        torch.save(state, unfinished)
        os.replace(unfinished, self._path)  # noqa: PTH105


if __name__ == "__main__":
    main(keep=Own)
