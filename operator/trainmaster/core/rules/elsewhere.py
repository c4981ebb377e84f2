"""Move a replica that cannot start on its node, though the job's others start on theirs, to another node in time.

A runtime, a network or a way to the registry that is broken on one node must not end a job that trains well elsewhere:
the node is avoided as one that fails is (rules/avoidance.py), long before the job is given up (rules/giving_up.py).
Where nothing starts anywhere the node is not the cause, and no replica is moved.
"""

from dataclasses import dataclass
from datetime import datetime

from trainmaster.core import figures
from trainmaster.core.failures import avoided
from trainmaster.core.situation import obstacles
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states.observed import Obstacle, ReplicaPhase
from trainmaster.core.states.verdict import NOTHING, Verdict

# Reasons that the node may cause: its images, its runtime, its network. A hopeless one is not waited for.
REASONS = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "ImageInspectError",
        "RegistryUnavailable",
        "CreateContainerError",
        "RunContainerError",
        obstacles.IMAGE_NOT_MOUNTED,
        obstacles.NOT_MOUNTED,
        obstacles.NOT_TAKEN_UP,
    }
)
SHARE = 3  # a replica stays on such a node for this part of `startSeconds`, 1/3 ...
LONGEST_SECONDS = 600  # ... but no longer
NODES = 3  # so many nodes are left at most; what is wrong with them all is not their fault
# A replica stuck for so long was not moved because of NODES. It stays when those expire, or no job would end.
TOO_LATE_SECONDS = 1800


@dataclass(frozen=True)
class _Stuck:
    """Hold a slot whose replica has a node and does not start there."""

    slot: Slot
    node: str
    obstacle: Obstacle
    since: datetime


def leave_node(facts: Facts) -> Verdict:
    """Avoid the node that keeps a replica from starting, and write a new incarnation; or look again when it is due."""
    known = {node.node for node in facts.status.avoided_nodes}
    stuck = _stuck(facts) if len(known) < NODES else []
    wakes = []
    patience = min(facts.job.spec.failure_policy.start_seconds / SHARE, LONGEST_SECONDS)
    in_doubt, running = {one.node for one in stuck}, _running(facts) if stuck else {}
    for one in stuck:
        # A replica of its role runs on another node; or the job once trained, and only this node is in doubt.
        well = running.get(one.slot.role, set())
        elsewhere = len(well) > (one.node in well)
        is_the_nodes = elsewhere or (facts.status.running_time is not None and in_doubt == {one.node})
        if one.node not in known and is_the_nodes:
            hopeless = one.obstacle.reason in obstacles.HOPELESS
            due = figures.later(one.since, 0.0 if hopeless else patience)
            if due <= facts.now:
                leaving = [other.slot for other in stuck if other.node == one.node]
                named = ", ".join(slot.key for slot in leaving)
                reason = f"{named} could not start there: {figures.sentence(one.obstacle.message)}"
                said = f"{named} could not start on its node. "
                return Verdict(status=avoided.avoiding(facts, one.node, reason, leaving, said))
            wakes.append(due)
    return Verdict(wake_at=min(wakes)) if wakes else NOTHING


def _stuck(facts: Facts) -> list[_Stuck]:
    found = []
    for slot in (*facts.wanted, *facts.spares):
        told = obstacles.obstacle_of(facts, slot)
        node = slot.replica.node if slot.replica and slot.replica.phase == ReplicaPhase.PENDING else ""
        if told and node and told[0].reason in REASONS:
            found.append(_Stuck(slot, node, *told))
    return [one for one in found if facts.now < figures.later(one.since, TOO_LATE_SECONDS)]


def _running(facts: Facts) -> dict[str, set[str]]:
    """Return the nodes on which replicas of each role run."""
    found: dict[str, set[str]] = {}
    for slot in facts.wanted:
        if slot.replica and slot.replica.alive and slot.replica.phase == ReplicaPhase.RUNNING:
            found.setdefault(slot.role, set()).add(slot.replica.node)
    return found
