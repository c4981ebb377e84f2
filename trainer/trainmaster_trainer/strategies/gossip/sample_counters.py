"""SampleCounters: how many samples each worker has done, as far as one has heard.

A grow-only counter (Shapiro et al., "A comprehensive study of convergent and commutative replicated data types", INRIA
2011): each worker raises its own entry, and two that meet take the higher of both for every entry. So everybody comes
to the same sum, in whatever order the news arrives, and news that arrive twice do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BEFORE = -1  # the entry of what a checkpoint has that does not say who did it


@dataclass
class Entry:
    """One worker's last word."""

    samples: int = 0
    loss: float = 0.0
    distance: float = 0.0  # to the partner it met last, relative to its own length


@dataclass
class SampleCounters:
    """Everybody's last word, as far as heard. Not for two threads at once."""

    batch: int
    entries: dict[int, Entry] = field(default_factory=dict)

    def add(self, rank: int, samples: int, loss: float) -> None:
        """A worker's own work."""
        entry = self.entries.setdefault(rank, Entry())
        entry.samples += samples
        entry.loss = loss

    def merge(self, plain: Any) -> None:
        """What another has heard."""
        for rank, samples, loss, distance in plain:
            if samples > self.entries.get(rank, Entry()).samples:
                self.entries[rank] = Entry(samples, loss, distance)

    def plain(self) -> list[list[float]]:
        """To be told to another."""
        return [[rank, entry.samples, entry.loss, entry.distance] for rank, entry in self.entries.items()]

    def state(self) -> dict[str, Any]:
        """For a checkpoint. Who goes on from it counts from the same entries as those who never left."""
        return {"batch": self.batch, "entries": self.plain()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """What `state` gave, instead of what was counted. Samples of global batches of another size do not count."""
        if state["batch"] == self.batch:
            self.entries = {}
            self.merge(state["entries"])

    @property
    def samples(self) -> int:
        """All that were done."""
        return sum(entry.samples for entry in self.entries.values())

    @property
    def step(self) -> int:
        """In global batches."""
        return self.samples // self.batch

    def mean(self, ranks: list[int], name: str) -> float:
        """Of these workers' last words."""
        said = [getattr(self.entries[rank], name) for rank in ranks if rank in self.entries]
        return sum(said) / len(said) if said else 0.0
