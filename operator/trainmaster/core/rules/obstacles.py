"""What keeps replicas from starting. Some of it will not mend itself; the rest gets a fair time, then the job ends."""

from datetime import datetime

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import ending, figures
from trainmaster.core.facts import Facts
from trainmaster.core.observed import Obstacle
from trainmaster.core.verdict import Verdict
from trainmaster.wire import names

HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull", "Invalid"})

# Reasons that wait for somebody's help. A cluster that is merely full (Unschedulable) may be waited for without end.
NEEDS_HELP = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "ImageInspectError",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "VolumeMissing",
        "MountsNotReady",
        "Forbidden",
        "NameTaken",
    }
)

# What every replica passes through, and an obstacle only if it lasts. Seconds.
PATIENCE = {"MountsNotReady": 15}

CURES = {
    "InvalidImageName": "Correct spec.workers.image.",
    "ErrImageNeverPull": "Load the image on the nodes, or set spec.workers.imagePullPolicy to IfNotPresent.",
    "ImagePullBackOff": "Check spec.workers.image and spec.workers.imagePullSecrets.",
    "ErrImagePull": "Check spec.workers.image and spec.workers.imagePullSecrets.",
    "VolumeMissing": "Create the claim, or correct spec.checkpoint.storage or spec.workers.volumes.",
    "MountsNotReady": "Create what is missing: `kubectl describe pod` names it among the pod's events.",
    "CreateContainerConfigError": "Create the ConfigMap or Secret that the pod refers to.",
    "Forbidden": "The namespace's quota or Pod Security level refuses these pods; see the message.",
    "NameTaken": "Another object has the name of one of this job's pods; rename the job.",
    "Invalid": "The API server refuses the pod; correct the named field.",
}


def give_up(facts: Facts) -> Verdict:
    """Fail a job that cannot start; else come back when its time is up."""
    found = obstacles(facts)
    hopeless = [obstacle for obstacle, _ in found if obstacle.reason in HOPELESS]
    if hopeless:
        return Verdict(status=_failed(facts, hopeless[0]))
    limit = facts.job.spec.failure_policy.start_seconds
    waiting = [(figures.later(since, limit), obstacle) for obstacle, since in found if obstacle.reason in NEEDS_HELP]
    if not waiting:
        return Verdict(wake_at=next_look(facts))
    end, obstacle = min(waiting, key=lambda pair: pair[0])
    return Verdict(status=_failed(facts, obstacle)) if facts.now >= end else Verdict(wake_at=end)


def obstacles(facts: Facts) -> list[tuple[Obstacle, datetime]]:
    """Everything that is in the way now, and since when."""
    return [(obstacle, since) for obstacle, since in _told(facts) if facts.now >= _counts_from(obstacle, since)]


def next_look(facts: Facts) -> datetime | None:
    """When something that may still pass would be an obstacle."""
    moments = [_counts_from(obstacle, since) for obstacle, since in _told(facts)]
    return min((moment for moment in moments if moment > facts.now), default=None)


def _counts_from(obstacle: Obstacle, since: datetime) -> datetime:
    return figures.later(since, PATIENCE.get(obstacle.reason, 0))


def _told(facts: Facts) -> list[tuple[Obstacle, datetime]]:
    """What keeps a spare from starting is in nobody's way."""
    beside = {names.replica_name(facts.job.name, one.role, one.index, one.incarnation) for one in facts.spares}
    refused = [obstacle for obstacle in facts.observed.refused if obstacle.name not in beside]
    found = [(obstacle, _since(obstacle, facts.incomplete_since)) for obstacle in refused]
    for slot in facts.slots:
        if slot.replica and slot.replica.obstacle and slot.replica.alive:
            created = figures.moment(slot.replica.created) or facts.now
            found.append((slot.replica.obstacle, _since(slot.replica.obstacle, created)))
    return found


def _since(obstacle: Obstacle, otherwise: datetime) -> datetime:
    told = None if obstacle.since is None else figures.moment(obstacle.since)
    return told or otherwise


def sentence(obstacle: Obstacle) -> str:
    """The platform's message and our cure."""
    return f"{obstacle.message.rstrip('.')}. {CURES.get(obstacle.reason, '')}".strip()


def _failed(facts: Facts, obstacle: Obstacle) -> TrainingJobStatus:
    return ending.failed(facts.status, obstacle.reason, sentence(obstacle), facts.now)
