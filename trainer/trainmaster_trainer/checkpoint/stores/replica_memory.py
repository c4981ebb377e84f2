"""ReplicaMemory is the memory of the replicas, as a source: the snapshots that `memory.py` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.wire import codec
from typing_extensions import override

from trainmaster_trainer.checkpoint import recall, rejoin
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.manifest_check import check_same_dataset
from trainmaster_trainer.checkpoint.memory import PENDING
from trainmaster_trainer.checkpoint.neighbours import NEIGHBOUR
from trainmaster_trainer.checkpoint.recall import Recalled
from trainmaster_trainer.checkpoint.slot import Owner, Snapshot
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores.store import Row, Source, Told
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


@dataclass
class ReplicaMemory(Source[Recalled]):
    """ReplicaMemory is a source of which one state is tried: the newest that all ranks can restore together."""

    settings: Settings
    group: Group
    dataset: int  # how many samples there are now; 0 where that is not known
    mine: list[Snapshot] | None = None  # that this rank sees; None before it has looked
    like: State = field(default_factory=State)
    way: Lineage = field(default_factory=Lineage)

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        """Return the snapshots that this rank sees; none once one was tried."""
        self.like, self.way = outline, way
        if self.mine is None:
            self.mine = recall.find_snapshots(self.settings, outline, way)
        return [[one.owner.step, codec.to_plain(one.owner)] for one in self.mine]

    @override
    def choose(self, told: Told) -> Row | None:
        """Return step and attempt of the newest state that memory has for the whole group."""
        return recall.choose([[Owner(**plain) for _, plain in rows] for rows in told])

    @override
    def why_none(self, way: Lineage) -> str:
        """Return nothing: where memory has no state, training goes on from a checkpoint."""
        return ""

    @override
    def bring(self, chosen: Row, told: Told) -> Recalled | None:
        """Load it, or take it from a rank that has it where all have the same.

        Raises:
            ConfigurationError: it was reached with another number of samples.
        """
        held, key = [[Owner(**plain) for _, plain in rows] for rows in told], (int(chosen[0]), int(chosen[1]))
        mine, self.mine = self.mine or [], []
        there = [one for rows in held for one in rows if one.key == key]
        check_same_dataset(key[0], there[0].dataset, self.dataset)
        lost = rejoin.bring_back(key, held, mine, self.settings, self.group)
        for rank in lost:  # which has it now, with its losses
            held[rank] += [one for one in there if one.rank == rank]
        if self.group.rank in lost:
            mine = recall.find_snapshots(self.settings, self.like, self.way)
        state = recall.load([one for one in mine if one.owner.key == key], self.settings)
        pending = recall.pending(key, mine, held, self.group.rank)
        lacking = self.group.gather(state is None)
        if all(lacking):
            return None
        if not any(lacking):
            holder = min({*range(len(held))} - {*lost}, default=0)
        else:
            holder = lacking.index(False)
            if any(one.replicated for one in there):
                state = recall.spread(state, holder, self.group)
            else:
                state = rejoin.restored(key, state, lacking, held, mine, allowed=self.like.allowed, group=self.group)
        if state is None:
            return None
        tensors = {name: one for name, one in state.tensors.items() if name not in (PENDING, NEIGHBOUR)}
        return Recalled(*key, State(tensors, state.scalars), pending, holder)
