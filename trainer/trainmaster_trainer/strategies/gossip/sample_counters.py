"""SampleCounters counts how many samples each worker has done, as far as this worker has heard.

It is a grow-only counter (Shapiro et al., "A comprehensive study of convergent and commutative replicated data types",
INRIA 2011): each worker raises its own entry, and two that meet take the higher of both for every entry. So all workers
come to the same sum, in whatever order the entries arrive; an entry that arrives twice changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BEFORE = -1  # the entry of what a checkpoint has that does not say who did it


@dataclass
class CounterEntry:
    """Hold what one worker has last said."""

    samples: int = 0
    loss: float = 0.0
    distance: float = 0.0  # to the partner it met last, relative to its own length
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # None where it is not finite


@dataclass
class SampleCounters:
    """SampleCounters holds the newest known entry of every worker. Not safe for two threads at once."""

    batch: int
    entries: dict[int, CounterEntry] = field(default_factory=dict)

    def add(self, rank: int, samples: int, loss: float, metrics: Mapping[str, float] | None = None) -> None:
        """Add a worker's own work."""
        entry = self.entries.setdefault(rank, CounterEntry())
        entry.samples += samples
        entry.loss = loss
        entry.metrics = {name: value if math.isfinite(value) else None for name, value in (metrics or {}).items()}

    def merge(self, plain: Any) -> None:
        """Take over the entries of another worker that are newer than those here."""
        for rank, samples, loss, distance, *metrics in plain:
            if samples > self.entries.get(rank, CounterEntry()).samples:
                self.entries[rank] = CounterEntry(samples, loss, distance, *metrics)

    def plain(self) -> list[list[Any]]:
        """Return the entries as lists, to send them to another worker."""
        return [
            [rank, entry.samples, entry.loss, entry.distance, *([dict(entry.metrics)] if entry.metrics else [])]
            for rank, entry in self.entries.items()
        ]

    def state(self) -> dict[str, Any]:
        """Return the entries for a checkpoint, so that a resumed worker counts like one that never left."""
        return {"batch": self.batch, "entries": self.plain()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the entries by those that `state` gave, unless they were counted with another global batch size."""
        if state["batch"] == self.batch:
            self.entries = {}
            self.merge(state["entries"])

    @property
    def samples(self) -> int:
        """Return the number of samples that all workers have done."""
        return sum(entry.samples for entry in self.entries.values())

    @property
    def step(self) -> int:
        """Return the step, counted in global batches."""
        return self.samples // self.batch

    def mean(self, ranks: list[int], name: str) -> float:
        """Return the mean of a figure over the entries of these workers, 0.0 if none of them has an entry."""
        said = [getattr(self.entries[rank], name) for rank in ranks if rank in self.entries]
        return sum(said) / len(said) if said else 0.0

    def metrics(self, ranks: list[int]) -> dict[str, float]:
        """Return the means of the metrics over the entries of these workers; NaN where one of them is not finite."""
        said = [entry.metrics for rank in ranks if (entry := self.entries.get(rank)) and entry.metrics]
        names = sorted({*said[0]}.intersection(*said[1:])) if said else []
        values = {name: [one[name] for one in said] for name in names}
        return {
            name: math.nan if None in found else sum(filter(None, found)) / len(found) for name, found in values.items()
        }
