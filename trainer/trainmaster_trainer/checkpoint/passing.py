"""Pass snapshots on to the next replica: when that is due, what it takes, and whether all ranks have done so."""

from __future__ import annotations

import time
from collections import deque
from statistics import median

import torch

from trainmaster_trainer.group import Group


class Passing:
    """Passing is how a rank passes snapshots on to the next replica: whole, or what it alone has."""

    def __init__(self, group: Group) -> None:
        self._group = group
        apart = group.local_world_size  # ranks of the same local number, in the replicas before and after this one
        self.before = (group.rank - apart) % group.world_size  # whose this rank keeps
        self._after = (group.rank + apart) % group.world_size  # who keeps its own
        self.every = 1  # steps between two
        self.seconds = 0.0  # that one takes, as a mean over ranks
        self.step = -1  # of the newest that all ranks have
        self._lately: deque[float] = deque(maxlen=9)  # seconds
        self._asking = 0.0  # seconds, whether all had the last one

    def due(self, step: int) -> bool:
        """Return whether the snapshot of this step is to be passed on. It is the same on all ranks."""
        return self.step < 0 or step - self.step >= self.every

    def _agree(self, step: int, seconds: float | None, *missing: bool) -> list[bool]:
        """Return which of these holds on some rank. All call it together, after the same step.

        `seconds`: that passing it on has taken; None for the first ones, which wait for what is made once. The snapshot
        of this step is passed on where the last of `missing` holds nowhere.
        """
        if seconds is not None:
            self._lately.append(seconds + self._asking)
        told = torch.tensor([*missing, median(self._lately) if self._lately else 0.0], dtype=torch.float64)
        began = time.perf_counter()
        *counts, total = self._group.sum(told).tolist()
        self._asking = time.perf_counter() - began
        self.seconds = total / self._group.world_size
        if not counts[-1]:
            self.step = step
        return [count > 0 for count in counts]
