"""The replicas that should exist are created; those that should not are deleted.

A slot whose replicas end as soon as they are made (a node that refuses them, an agent that cannot start) is given
time: the third within WINDOW_SECONDS waits a little, and those after it longer. The last few that have ended stay for
people to read. One whose name is taken gets the next one.
"""

from datetime import datetime

from trainmaster.core import clocks, figures
from trainmaster.core.actions import Action, CreateReplica, CreateService, DeleteReplica
from trainmaster.core.facts import Facts, Slot
from trainmaster.core.observed import Replica
from trainmaster.core.rules import obstacles
from trainmaster.core.verdict import NOTHING, Verdict

KEPT = 3  # ended replicas of a slot
WINDOW_SECONDS = 120
# By how many replicas of the slot have ended within the window: seconds from the last one's creation to the next one's.
PAUSES = (0, 0, 5, 30)


def take_other_names(facts: Facts) -> Verdict:
    """Where a pod of a job of the same name lingers that was deleted, or one of ours whose labels somebody edited.

    As often as it takes: each number that is passed over is that of a pod which is there.
    """
    nameless = obstacles.nameless(facts)
    if not nameless:
        return NOTHING
    keys = ", ".join(slot.key for slot in nameless)
    message = (
        f"{keys}: the name is taken by a pod that is not this job's, or whose labels were edited; "
        "the next one is tried."
    )
    update = {"incarnations": facts.replacing(nameless), "message": message}
    return Verdict(status=facts.status.model_copy(update=update))


def create_and_delete(facts: Facts) -> Verdict:
    """Level-triggered: what is there already is left alone."""
    actions: list[Action] = [] if facts.observed.service else [CreateService()]
    wakes: list[datetime] = []
    for slot in (*facts.wanted, *facts.spares):
        if slot.replica is None and slot.key not in facts.written_done:
            due = _due(facts, slot)
            if due <= facts.now:
                actions.append(CreateReplica(slot.role, slot.index, slot.incarnation))
            else:
                wakes.append(due)
    actions += [DeleteReplica(replica.name, replica.uid) for replica in _unwanted(facts)]
    return Verdict(actions=tuple(actions), wake_at=min(wakes, default=None))


def _due(facts: Facts, slot: Slot) -> datetime:
    """When the slot's next replica may be created. What was created in a time to come tells nothing."""
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
        if replica.uid in old or ((replica.alive or replica.lingering) and replica.uid not in wanted)
    ]
