"""Compute how long a replica may take to save before it is killed: three times what the newest checkpoint took.

The measured time is in the status; a job's first pods get the least.
"""

import math

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus

LEAST_SECONDS = 30
MOST_SECONDS = 3600
FOR_LAST_WORDS = 10  # so many of these seconds the agent keeps for its last heartbeat
_TIMES = 3


def grace_seconds(job: TrainingJob) -> int:
    """Return the seconds from SIGTERM to SIGKILL of a pod."""
    return max(LEAST_SECONDS, min(MOST_SECONDS, math.ceil(to_save(job.status)) + FOR_LAST_WORDS))


def to_save(status: TrainingJobStatus) -> float:
    """Return the seconds that ranks should get for a save; 0 while none was measured."""
    return _TIMES * ((status.checkpoint.seconds if status.checkpoint else None) or 0.0)
