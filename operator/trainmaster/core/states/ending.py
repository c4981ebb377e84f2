"""End a job: the one place where a status becomes terminal."""

import dataclasses
from datetime import datetime

from trainmaster.api.states import Phase
from trainmaster.api.status import TrainingJobStatus


def succeeded(
    status: TrainingJobStatus, message: str, now: datetime, reason: str = "AllWorkersFinished"
) -> TrainingJobStatus:
    """Return the status of a job that succeeded."""
    return _ended(status, Phase.SUCCEEDED, reason, message, now)


def failed(status: TrainingJobStatus, reason: str, message: str, now: datetime) -> TrainingJobStatus:
    """Return the status of a job that failed: CamelCase `reason`, and a sentence that names cause and cure."""
    return _ended(status, Phase.FAILED, reason, message, now)


def _ended(status: TrainingJobStatus, phase: Phase, reason: str, message: str, now: datetime) -> TrainingJobStatus:
    return dataclasses.replace(status, phase=phase, reason=reason, message=message, completion_time=now)
