"""End a job: the one place where a status becomes terminal."""

from datetime import datetime

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import phases


def succeeded(status: TrainingJobStatus, message: str, now: datetime) -> TrainingJobStatus:
    """Return the status of a job that succeeded."""
    return _ended(status, phases.SUCCEEDED, "AllWorkersFinished", message, now)


def failed(status: TrainingJobStatus, reason: str, message: str, now: datetime) -> TrainingJobStatus:
    """Return the status of a job that failed: CamelCase `reason`, and a sentence that names cause and cure."""
    return _ended(status, phases.FAILED, reason, message, now)


def _ended(status: TrainingJobStatus, phase: str, reason: str, message: str, now: datetime) -> TrainingJobStatus:
    update = {"phase": phase, "reason": reason, "message": message, "completion_time": now}
    return status.model_copy(update=update)
