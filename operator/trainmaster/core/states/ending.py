"""End a job: the one place where a status becomes terminal."""

import dataclasses
from datetime import datetime

from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus


def succeeded(
    status: TrainingJobStatus, message: str, now: datetime, reason: str = "AllWorkersFinished"
) -> TrainingJobStatus:
    """Return the status of a job that succeeded."""
    return dataclasses.replace(status, phase=Phase.SUCCEEDED, reason=reason, message=message, completion_time=now)


def failed(status: TrainingJobStatus, reason: str, message: str, now: datetime) -> TrainingJobStatus:
    """Return the status of a job that failed: CamelCase `reason`, and a sentence that names cause and cure."""
    return dataclasses.replace(status, phase=Phase.FAILED, reason=reason, message=message, completion_time=now)
