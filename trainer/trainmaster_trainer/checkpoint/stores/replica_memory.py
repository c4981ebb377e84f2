"""ReplicaMemory is the memory of the replicas, as a source: the snapshots that `memory.py` takes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field

from typing_extensions import override

from trainmaster_trainer.checkpoint import recall, rejoin
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.manifest_check import check_same_dataset
from trainmaster_trainer.checkpoint.memory import PENDING
from trainmaster_trainer.checkpoint.neighbours import NEIGHBOUR
from trainmaster_trainer.checkpoint.recall import Recalled
from trainmaster_trainer.checkpoint.slot import Owner, SlotError, Snapshot
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores.store import Row, Source, Told
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)


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
        return [[one.owner.step, *astuple(one.owner)] for one in self.mine]

    @override
    def bring(self, newest: Row, told: Told) -> Recalled | None:
        """Load the newest state that memory has for the whole group, or take it from a rank that has it.

        Raises:
            ConfigurationError: it was reached with another number of samples.
        """
        held = [[Owner(*rest) for _, *rest in rows] for rows in told]
        mine, self.mine = self.mine or [], []
        key = recall.choose(held)
        if key is None:
            return None
        there = [one for rows in held for one in rows if one.key == key]
        check_same_dataset(key[0], there[0].dataset, self.dataset)
        lost = rejoin.bring_back(key, held, mine, self.settings, self.group)
        for rank in lost:  # which has it now, with its losses
            held[rank] += [one for one in there if one.rank == rank]
        if self.group.rank in lost:
            mine = recall.find_snapshots(self.settings, self.like, self.way)
        held, loaded = [[one for one in rows if one.key == key] for rows in held], []
        for one in mine:
            try:
                loaded += [one.load()] if one.owner.key == key else []
            except SlotError as error:
                log.warning("A snapshot in memory cannot be read: %s.", error)
        state = recall.load(loaded, self.settings)
        pending = recall.pending(loaded, held, self.group.rank)
        lacking = self.group.gather(state is None)
        if all(lacking):
            return None
        if any(lacking):
            holder = lacking.index(False)
            state = rejoin.restored(state, lacking, held, loaded, allowed=self.like.allowed, group=self.group)
        else:
            holder = min({*range(len(held))} - {*lost}, default=0)
        if state is None:
            return None
        tensors = {name: one for name, one in state.tensors.items() if name not in (PENDING, NEIGHBOUR)}
        return Recalled(*key, State(tensors, state.scalars), pending, holder)
