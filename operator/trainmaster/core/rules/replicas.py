"""Create the replicas that should exist, and delete those that should not.

A slot whose replicas end as soon as they are made (a node that refuses them, an agent that cannot start) is given time:
the third within WINDOW_SECONDS waits a little, and those after it longer. The last few that have ended are kept for
their logs. A replica whose name is taken gets the next name.
"""

import dataclasses
from datetime import datetime

from trainmaster.core import figures
from trainmaster.core.situation import clocks, objects, obstacles
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states.actions import Action, CreateReplica, DeleteObject, DeleteReplica, EnsureObject
from trainmaster.core.states.observed import Replica
from trainmaster.core.states.verdict import NOTHING, Verdict

KEPT = 3  # so many ended replicas of a slot are kept
WINDOW_SECONDS = 120
# Seconds from the last replica's creation to the next one's, by how many of the slot have ended within the window.
PAUSES = (0, 0, 5, 30)


def take_other_names(facts: Facts) -> Verdict:
    """Take the next incarnation where a foreign pod has the name: of a deleted job, or one whose labels were edited.

    This is repeated as often as needed: each number that is passed over is that of a pod which is there.
    """
    nameless = obstacles.nameless(facts)
    if not nameless:
        return NOTHING
    keys = ", ".join(slot.key for slot in nameless)
    message = (
        f"{keys}: the name is taken by a pod that is not this job's, or whose labels were edited; "
        "the next one is tried."
    )
    return Verdict(status=dataclasses.replace(facts.status, incarnations=facts.replacing(nameless), message=message))


def create_and_delete(facts: Facts) -> Verdict:
    """Create missing replicas and objects, and delete unwanted ones. Level-triggered: what is there is left alone.

    Where no replica may be made before an object is there, the object alone is made, and only when a replica is due.
    """
    actions: list[Action] = []
    before: list[Action] = []
    for kind in objects.missing(facts):
        (before if objects.KINDS[kind].before_replicas else actions).append(EnsureObject(kind))
    created: list[Action] = []
    wakes: list[datetime] = []
    for slot in (*facts.wanted, *facts.spares):
        if slot.replica is None and slot.key not in facts.written_done:
            due = _due(facts, slot)
            if due <= facts.now:
                created.append(CreateReplica(slot.role, slot.index, slot.incarnation))
            else:
                wakes.append(due)
    actions += (before or created) if created else []
    actions += [DeleteReplica(replica.name, replica.uid) for replica in _unwanted(facts)]
    actions += [DeleteObject(kind) for kind in objects.surplus(facts)]
    return Verdict(actions=tuple(actions), wake_at=min(wakes, default=None))


def _due(facts: Facts, slot: Slot) -> datetime:
    """Return when the slot's next replica may be created. Creation times in the future are ignored."""
    window = figures.later(facts.now, -WINDOW_SECONDS)
    created = (figures.moment(replica.created) for replica in facts.ended.get(slot.key, ()))
    made = [time for time in (clocks.past(one, facts.now) for one in created) if time and time > window]
    pause = PAUSES[min(len(made), len(PAUSES) - 1)]
    return figures.later(max(made), pause) if made else facts.now


def _unwanted(facts: Facts) -> list[Replica]:
    wanted = {slot.replica.uid for slot in (*facts.wanted, *facts.spares) if slot.replica}
    old = {replica.uid for ended in facts.ended.values() for replica in ended[:-KEPT]}
    return [
        replica
        for replica in facts.observed.replicas
        if replica.uid in old or ((replica.alive or replica.kept_by) and replica.uid not in wanted)
    ]
