"""How long a replica that is told to go may take to save first: three times what the newest checkpoint took.

Called by the Kubernetes hand for every new pod. What was measured is in the status: a job's first pods get the least.
"""

import math

from trainmaster.api.job import TrainingJob

LEAST_SECONDS = 30
MOST_SECONDS = 3600
FOR_LAST_WORDS = 10  # of it the agent keeps so many, for its last heartbeat
_TIMES = 3


def grace_seconds(job: TrainingJob) -> int:
    """From SIGTERM to SIGKILL of a pod."""
    saved = job.status.checkpoint
    measured = (saved.seconds if saved else None) or 0.0
    return max(LEAST_SECONDS, min(MOST_SECONDS, math.ceil(_TIMES * measured) + FOR_LAST_WORDS))
