"""State the condition SidecarsEnded: containers that keep the pods of an ended job, until those pods are deleted.

Kubernetes ends native sidecars itself (init containers with restartPolicy Always), and pod and log stay. A plain one
runs on and holds the pod's devices, so the pod is deleted, and its log with it (rules/finished.py, decision 0153).
"""

from trainmaster.api.job_states import TERMINAL
from trainmaster.core import figures
from trainmaster.core.situation import edits
from trainmaster.core.situation.facts import Facts, Statement

SIDECARS_ENDED = "SidecarsEnded"
STILL_RUNNING, ALL_ENDED, PODS_DELETED = "StillRunning", "AllEnded", "PodsDeleted"

# After the end: a sidecar that watches the trainer ends by itself within the first of them, and after the second pods
# are deleted that it still keeps. Between them their logs can be read, and it is said that they go.
TOLD_SECONDS, KEPT_SECONDS = 30, 300


def statement(facts: Facts, phase: str) -> Statement | None:
    """Return what holds now; None where no container outlived the training."""
    before = next((one for one in facts.status.conditions if one.type == SIDECARS_ENDED), None)
    ended = facts.status.completion_time
    if phase not in TERMINAL or ended is None:
        return None
    kept, over = [one for one in facts.observed.replicas if one.kept_by], figures.later(ended, KEPT_SECONDS)
    if kept and facts.now >= figures.later(ended, TOLD_SECONDS):
        pods = edits.listed(sorted(replica.name for replica in kept))
        containers = edits.listed(sorted({replica.kept_by for replica in kept}))
        message = (
            f"Training has ended, and the container {containers} runs on in {pods}. To free what they hold, the pods "
            f"are deleted at {over:%H:%M:%S} UTC, and their logs with them: read them before with `kubectl logs`. As "
            "an init container with restartPolicy: Always it would be ended by Kubernetes, and pods and logs would "
            "stay."
        )
        return SIDECARS_ENDED, False, STILL_RUNNING, message
    if before is None:
        return None
    if before.status == "True":
        return SIDECARS_ENDED, True, before.reason, before.message
    if facts.now < over:
        return SIDECARS_ENDED, True, ALL_ENDED, "The containers beside the trainer have ended; the logs are there."
    message = (
        "Pods that a container beside the trainer kept were deleted with their logs. As an init container with "
        "restartPolicy: Always it would be ended by Kubernetes, and pods and logs would stay."
    )
    return SIDECARS_ENDED, True, PODS_DELETED, message
