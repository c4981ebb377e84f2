"""Find what keeps replicas from starting: each obstacle with its reason, since when, and a cure.

The rule that ends a job because of one is rules/giving_up.py.
"""

from datetime import datetime

from trainmaster.core import figures
from trainmaster.core.situation import objects
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states import phases
from trainmaster.core.states.observed import Obstacle
from trainmaster.wire import names

# The variables of a process exceed the limit of the kernel.
TOO_LARGE = "BadConfiguration"
# A foreign object has the name of one of ours. A replica gets another name (rules/replicas.py), a Service cannot.
NAME_TAKEN = "NameTaken"
POLICY_TAKEN = "NetworkPolicyTaken"

# The runtime of the pod's node has no image volumes.
IMAGE_NOT_MOUNTED = "ImageNotMounted"

HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull", "Invalid", TOO_LARGE, IMAGE_NOT_MOUNTED})

# A replica runs, and its agent has not reported. That ends nothing: the network between is not the job's fault.
AGENT_SILENT = "AgentSilent"

# The namespace requires amounts that the job does not set, or adds defaults that it then refuses.
AMOUNTS_MISSING, NAMESPACE_DEFAULTS = "AmountsMissing", "NamespaceDefaults"

# How far a pod has come on its node that reports no failure. The kubelet tells more in events, which only users read.
NOT_MOUNTED, NOT_TAKEN_UP = "MountsNotReady", "NodeNotResponding"
BEING_CREATED, INITIALIZING = "ContainerCreating", "PodInitializing"
NOT_SCHEDULED = "NotScheduled"  # no scheduler has said anything of it

# A claim is for one pod at a time, and another pod has it.
CLAIM_OF_ONE_POD = "ClaimOfOnePod"

# The API server, or a webhook that it must ask, answers with an error of its own (5xx).
BROKEN = "InternalError"

# Reasons that are waited for without end: the cluster or the namespace's quota is full, the pod is held back by intent,
# something beside the job is broken or refused, or the pod may be making progress that cannot be seen from outside (an
# image of 30 GB is pulled, an init container fetches the data). Every other reason, known or not, has `startSeconds`:
# of an unknown reason it cannot be said that it passes by itself.
ENDLESS = frozenset(
    {
        "Unschedulable",
        "SchedulingGated",
        "QuotaExceeded",
        "NamespaceTerminating",
        "DeletionRefused",
        BROKEN,
        NAME_TAKEN,
        POLICY_TAKEN,
        AGENT_SILENT,
        BEING_CREATED,
        INITIALIZING,
        NOT_SCHEDULED,
    }
)
# Reasons that are told after all others: it is likely that nothing is wrong.
LIKELY_WELL = frozenset({BEING_CREATED, INITIALIZING})

# Seconds after which something that often passes by itself is an obstacle: what every replica goes through, the Service
# of a deleted job of the same name, what one node lacks while others that have it may be about to run.
PATIENCE = {NOT_MOUNTED: 15, NOT_TAKEN_UP: 30, NOT_SCHEDULED: 30, "ErrImageNeverPull": 30, IMAGE_NOT_MOUNTED: 30}
PATIENCE |= dict.fromkeys((NAME_TAKEN, AGENT_SILENT, BEING_CREATED, INITIALIZING), 60)

_AMOUNTS_IN_TEMPLATE = "spec.workers.template: {spec: {containers: [{name: trainer, resources: {limits: {cpu: 2}}}]}}"
_WHICH_IMAGE = (
    "Check the image that it names (spec.workers.image, or spec.training.code.image) and spec.workers.imagePullSecrets."
)
CURES = {
    "InvalidImageName": "Correct spec.workers.image.",
    "ErrImageNeverPull": "Load the image on the nodes, or set spec.workers.imagePullPolicy (of an image of code: "
    "spec.training.code.image.pullPolicy) to IfNotPresent.",
    IMAGE_NOT_MOUNTED: "Bring the code by spec.training.code.url or git, or by trainmaster submit; or choose newer "
    "nodes by spec.workers.nodeSelector.",
    **dict.fromkeys(("ImagePullBackOff", "ErrImagePull"), _WHICH_IMAGE),
    "VolumeMissing": "Create the claim, or correct spec.checkpoint.storage or spec.workers.volumes.",
    CLAIM_OF_ONE_POD: "A claim with ReadWriteOncePod serves one pod at a time, and another one uses it: take a claim "
    "with ReadWriteMany, or spec.workers.replicas: 1, or give each pod a claim of its own by ephemeral: "
    "{volumeClaimTemplate: ...} in spec.workers.volumes.",
    NOT_MOUNTED: "Create what is missing among the pod's events, or have the node's network mended.",
    NOT_TAKEN_UP: "`kubectl describe node` tells how the node fares; have it mended, or delete the pod.",
    NOT_SCHEDULED: "Have that scheduler started, or correct schedulerName in spec.workers.template.",
    BEING_CREATED: "It goes on by itself unless they tell of a failure; spec.activeDeadlineSeconds bounds all waiting.",
    INITIALIZING: "It is waited for; spec.activeDeadlineSeconds bounds all waiting.",
    "CreateContainerConfigError": "Create the ConfigMap or Secret that the pod refers to.",
    "Forbidden": "Pod Security, a limit of the namespace, or a right that the operator lacks: see the message.",
    AMOUNTS_MISSING: "A ResourceQuota of the namespace wants these amounts to be named: set spec.workers.cpu and "
    f"memory, which are requests (memory also a limit), and what else it wants in {_AMOUNTS_IN_TEMPLATE}.",
    NAMESPACE_DEFAULTS: "The namespace adds what the job does not say, by a LimitRange (`kubectl get limitrange -o "
    f"yaml`) or a webhook. Say it in the job, for example a limit of cpu in {_AMOUNTS_IN_TEMPLATE}, or have the "
    "namespace changed.",
    "QuotaExceeded": "It waits for room in the namespace's ResourceQuota: end what is not needed, or raise it.",
    "NamespaceTerminating": "The namespace is being deleted, and this job with it: create the job in another one.",
    "DeletionRefused": "Give the operator the right to delete pods, or delete the pod yourself: `kubectl delete pod`.",
    "DeniedByPolicy": "The admission webhook or policy that it names refuses these pods: change them, or it.",
    NAME_TAKEN: "Delete that Service, or rename the job: it trains without one, but its pods then have no DNS names.",
    POLICY_TAKEN: "Delete that NetworkPolicy, or rename the job: no pod is made before the job has its own "
    "(jobNetworkPolicy of the chart).",
    AGENT_SILENT: "Its log tells how it fares: a NetworkPolicy may keep it away, the URL may be wrong there, or "
    "its token is refused, and then the operator's log tells why.",
    TOO_LARGE: "The variables of spec.workers.env or parameterServers.env, with those of the shell, are too large; put "
    "what is large into files.",
    "Invalid": "The pod is not one that Kubernetes takes; correct the named field.",
    BROKEN: "The API server, or a webhook that it asks, must be mended: see the message.",
    "SchedulingGated": "It waits until whoever gated the pod (spec.schedulingGates) lets it go.",
    "Unschedulable": "It waits for a node with room: lower what the job asks for (cpu, memory, gpus, nodeSelector), or "
    "make room.",
}
_NAMED = 4  # at most so many missing replicas are named
OTHER_CURE = "`kubectl describe pod` tells more of it."
# Cures for obstacles of a container that does not use spec.workers.image.
_CURES_OF_OTHERS = {
    names.INSTALLER_CONTAINER: "That is the operator's own agent image: its administrator corrects the chart.",
    "": "Correct that container in spec.workers.template (or parameterServers.template).",
}


def has_its_time(reason: str) -> bool:
    """Return whether a job that waits for this reason is given up after `startSeconds`."""
    return reason not in ENDLESS | HOPELESS


def obstacles(facts: Facts) -> list[tuple[Obstacle, datetime]]:
    """Return all present obstacles, and since when each has existed."""
    return [
        (obstacle, since) for obstacle, since, counts_from in _obstacles_with_times(facts) if facts.now >= counts_from
    ]


def next_look(facts: Facts) -> datetime | None:
    """Return when something that may still pass becomes an obstacle; None where nothing will."""
    return min(
        (counts_from for _, _, counts_from in _obstacles_with_times(facts) if counts_from > facts.now), default=None
    )


def _obstacles_with_times(facts: Facts) -> list[tuple[Obstacle, datetime, datetime]]:
    """Return what keeps the group from starting, since when, and from when on it is an obstacle.

    What keeps only a spare from starting is left out.
    """
    # Refusals count of what is still wanted: a replica of an empty slot, an object, or what is about neither.
    taken = {obstacle.name for obstacle in facts.observed.refused if obstacle.reason == NAME_TAKEN}
    wished = {slot.name for slot in facts.slots if slot.replica is None} - taken
    wished |= {"", facts.job.name} if objects.missing(facts) else {""}
    refused = [obstacle for obstacle in facts.observed.refused if obstacle.name in wished]
    found = [(obstacle, _since(obstacle, facts.incomplete_since, facts.now)) for obstacle in refused]
    found += [one for slot in facts.slots if (one := obstacle_of(facts, slot))]
    # Of equally grave ones the one that is written comes first, so that the status does not change with each pod.
    written = next((one.reason for one in facts.status.conditions if one.type == phases.REPLICAS_READY), "")
    found.sort(key=lambda one: (one[0].reason in LIKELY_WELL, one[0].reason != written))
    # No rank can have trained since then: obstacles from before a suspension or a failure count from it.
    began = [facts.status.start_time, *(line.time for line in facts.status.restarts[-1:])]
    stood_still = max((time for time in began if time and time <= facts.now), default=facts.now)
    bounded = [(obstacle, max(since, stood_still)) for obstacle, since in found]
    return [(one, since, figures.later(since, PATIENCE.get(one.reason, 0))) for one, since in bounded]


def obstacle_of(facts: Facts, slot: Slot) -> tuple[Obstacle, datetime] | None:
    """Return what keeps this slot's replica from starting, and since when; None where nothing does."""
    replica = slot.replica
    if replica is None or replica.obstacle is None or not replica.alive:
        return None
    created = figures.moment(replica.created) or facts.now
    return replica.obstacle, _since(replica.obstacle, created, facts.now)


def nameless(facts: Facts) -> list[Slot]:
    """Return the slots whose replica cannot be made because its name is taken."""
    taken = {obstacle.name for obstacle in facts.observed.refused if obstacle.reason == NAME_TAKEN}
    return [slot for slot in (*facts.wanted, *facts.spares) if slot.replica is None and slot.name in taken]


def _since(obstacle: Obstacle, otherwise: datetime, now: datetime) -> datetime:
    """Return since when, by the platform's clock, which may be ahead: at most `now`. `otherwise` if it does not say."""
    told = None if obstacle.since is None else figures.moment(obstacle.since)
    return min(told or otherwise, now)


def sentence(obstacle: Obstacle) -> str:
    """Return the platform's message with a cure."""
    cure = CURES.get(obstacle.reason, OTHER_CURE)
    if obstacle.container not in ("", names.MAIN_CONTAINER):
        cure = _CURES_OF_OTHERS.get(obstacle.container, _CURES_OF_OTHERS[""])
    return f"{obstacle.message.rstrip('.')}. {cure}"


def waiting_for(facts: Facts) -> str:
    """Return why the group is not complete, in a sentence; empty when it is."""
    if names.SUBMISSION in facts.job.metadata.annotations:
        return "Waiting for its code, which trainmaster submit brings."
    found = obstacles(facts)
    if found:
        return sentence(found[0][0])
    missing = [slot.key for slot in facts.missing]
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return f"Waiting for {', '.join(missing[:_NAMED])}{more}." if missing else ""
