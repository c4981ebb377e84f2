"""Let spares step in: a spare is a warm worker beside the group that takes the place of a lost worker.

Which worker fills which place is written in `status.substitutes` (see `places`) before any agent is told. The worker
that left the place keeps its index and becomes a spare, as soon as it is there.
"""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.situation import places
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.wire import names


@dataclass(frozen=True)
class SpareExchange:
    """Hold what to write when spares take over places, and a sentence for users; `substitutes` is None if none does."""

    substitutes: dict[str, int] | None = None
    absent: tuple[str, ...] = ()
    sentence: str = ""

    def written(self, status: TrainingJobStatus) -> TrainingJobStatus:
        """Return the status with the exchange in it."""
        if self.substitutes is None:
            return status
        return dataclasses.replace(status, substitutes=self.substitutes, absent=self.absent)


def step_in(facts: Facts, leaving: Sequence[Slot], barred: Collection[str] = ()) -> SpareExchange:
    """Return the exchange: the best spares take these workers' places in order, except spares on `barred` nodes."""
    nodes = {slot.replica.node for slot in leaving if slot.replica}
    avoided = {node.node for node in facts.status.avoided_nodes}

    def rank(slot: Slot) -> tuple[bool, bool, bool, int]:
        # The best are on other nodes than those that leave, as the whole node may be lost, and warm.
        node = slot.replica.node if slot.replica else ""
        return node in nodes, node in avoided, not (slot.heartbeat and slot.heartbeat.warm), slot.index

    able = [slot for slot in facts.spares if slot.ready and slot.replica and slot.replica.node not in barred]
    workers = [slot for slot in leaving if slot.role == names.WORKER]
    pairs = dict(zip((slot.key for slot in workers), sorted(able, key=rank), strict=False))
    if not pairs:
        return SpareExchange()
    index_of = {old: new.index for old, new in pairs.items()}
    seats = tuple(index_of.get(places.name_of(index), index) for index in facts.regime.seats())
    absent = tuple(pairs[key].key if key in pairs else key for key in facts.status.absent)
    told = ", ".join(f"{new.key} takes the place of {old}" for old, new in pairs.items())
    return SpareExchange(places.written(seats), absent, f"Spare {told}.")
