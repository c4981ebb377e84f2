"""ReplicaMemory is the memory of the replicas, as a source: the snapshots that `memory.py` takes."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from trainmaster_trainer.checkpoint import recall, rejoin
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.manifest import check_same_dataset
from trainmaster_trainer.checkpoint.recall import Held, Recalled, row_of
from trainmaster_trainer.checkpoint.slot import Snapshot
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores.store import Row, Source, Told
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


class ReplicaMemory(Source[Recalled]):
    """ReplicaMemory is a source of which one state is tried: the newest that all ranks can restore together."""

    def __init__(self, settings: Settings, group: Group, dataset: int) -> None:
        self._settings, self._group = settings, group
        self._dataset = dataset  # how many samples there are now; 0 where that is not known
        self._mine: list[Snapshot] | None = None
        self._like, self._way = State(), Lineage()

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        """Return the snapshots that this rank sees; none once one was tried."""
        self._like, self._way = outline, way
        if self._mine is None:
            self._mine = recall.find_snapshots(self._settings, outline, way)
        return [row_of(snapshot) for snapshot in self._mine]

    @override
    def choose(self, told: Told) -> Row | None:
        """Return step and attempt of the newest state that memory has for the whole group."""
        return recall.choose(_held(told))

    @override
    def bring(self, chosen: Row, told: Told) -> Recalled | None:
        """Load it, or take it from a rank that has it where all have the same.

        Raises:
            ConfigurationError: it was reached with another number of samples.
        """
        held, key = _held(told), (int(chosen[0]), int(chosen[1]))
        mine, self._mine = self._mine or [], []
        there = [one for rows in held for one in rows if one.key == key]
        check_same_dataset(key[0], there[0].dataset, self._dataset)
        lost = rejoin.bring_back(key, held, mine, self._settings, self._group)
        if self._group.rank in lost:
            mine = recall.find_snapshots(self._settings, self._like, self._way)
        part = recall.load([one for one in mine if one.key == key], self._settings)
        pending = recall.pending(key, mine, held, self._group.rank)
        lacking = self._group.gather(part is None)
        if part is not None and not any(lacking):
            return part.recalled(key, pending, holder=min({*range(len(held))} - {*lost}, default=0))
        if any(one.replicated for one in there):
            return recall.spread(key, part, pending, self._group)
        return rejoin.restored(
            key, part, lacking, held, mine, pending=pending, allowed=self._like.allowed, group=self._group
        )


def _held(told: Told) -> list[list[Held]]:
    return [[Held(*row) for row in rows] for rows in told]
