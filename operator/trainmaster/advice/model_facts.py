"""Hold what the predictions start from: a model's sizes, a machine's speeds, and the numbers of a group.

`trainmaster_trainer.measure` prints the first two as one JSON object; the control side never imports torch.
"""

import math
from dataclasses import dataclass

from trainmaster.wire.measured import MachineFacts, ModelFacts

__all__ = ["GroupFacts", "MachineFacts", "ModelFacts"]


@dataclass(frozen=True)
class GroupFacts:
    """Hold the numbers of a spec that traffic, memory and cost depend on."""

    workers: int
    ranks_per_worker: int
    servers: int
    batch: int
    at_once: int | None = None  # samples, of a rank; None: its whole share
    reproducible: bool = False

    @property
    def ranks(self) -> int:
        """Return the number of ranks of all workers."""
        return self.workers * self.ranks_per_worker

    def parts(self, shares: int) -> int:
        """Return into how many parts each of so many shares of a batch is cut, to compute `at_once` samples at once."""
        if self.at_once is None:
            return 1
        return max(1, min(math.ceil(math.ceil(self.batch / shares) / self.at_once), self.batch // shares))
