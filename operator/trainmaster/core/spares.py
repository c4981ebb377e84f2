"""Spares: workers beside the group that are warm and wait; one of them takes the place of a worker that is lost.

Who fills which place is written in `status.substitutes` (see `places`) before anybody is told. The worker that left the
place keeps its index and becomes a spare, as soon as it is there. Used by the rules on losses, nodes and spares.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from trainmaster.core import places
from trainmaster.core.facts import Facts, Slot
from trainmaster.wire import names


@dataclass(frozen=True)
class Exchange:
    """Spares that take over places: what is to be written, and a sentence for people; both empty where none does."""

    update: dict[str, object] = field(default_factory=dict)
    sentence: str = ""


def step_in(facts: Facts, leaving: Sequence[Slot], barred: Collection[str] = ()) -> Exchange:
    """The best spares take the places of these workers, the first ones first. Not those on `barred` nodes."""
    workers = [slot for slot in leaving if slot.role == names.WORKER]
    found = _best_first(facts, {slot.replica.node for slot in leaving if slot.replica}, barred)
    pairs = dict(zip((slot.key for slot in workers), found, strict=False))
    if not pairs:
        return Exchange()
    index_of = {old: new.index for old, new in pairs.items()}
    seats = tuple(index_of.get(places.name_of(index), index) for index in facts.seats)
    absent = tuple(pairs[key].key if key in pairs else key for key in facts.status.absent)
    told = ", ".join(f"{new.key} takes the place of {old}" for old, new in pairs.items())
    return Exchange({"substitutes": places.written(seats), "absent": absent}, f"Spare {told}.")


def ready(facts: Facts) -> bool:
    """Whether a spare could take a place now."""
    return any(slot.ready for slot in facts.spares)


def _best_first(facts: Facts, nodes: Collection[str], barred: Collection[str]) -> list[Slot]:
    """Elsewhere than those that leave: what took them may take the whole node. And warm, so that a start is short."""
    avoided = {node.node for node in facts.status.avoided_nodes}

    def worse(slot: Slot) -> tuple[bool, bool, bool, int]:
        node = slot.replica.node if slot.replica else ""
        return node in nodes, node in avoided, not (slot.heartbeat and slot.heartbeat.warm), slot.index

    able = [slot for slot in facts.spares if slot.ready and slot.replica and slot.replica.node not in barred]
    return sorted(able, key=worse)
