"""Keep the curve of a job in its status: few enough points to cost nothing, spread over all of the training.

Points are taken from progress that is written anyway. When there are too many, every second one is left out and new
ones come half as often. Steps that are trained again replace their points, so the curve is that of the final model.
"""

from trainmaster.api.status import MAX_HISTORY, HistoryPoint, Progress, TrainingJobStatus


def of(status: TrainingJobStatus, progress: Progress) -> tuple[HistoryPoint, ...]:
    """Return the history with this progress in it, if it is time for a point, or the job has ended."""
    if not progress.step:
        return status.history
    points = [point for point in status.history if point.step < progress.step]
    if points and not status.finished and progress.step - points[-1].step < _stride(points):
        return tuple(points)
    if len(points) == MAX_HISTORY:
        points = points[1::2]  # the newest stays
    made = HistoryPoint(step=progress.step, loss=progress.loss, samples_per_second=progress.samples_per_second)
    return (*points, made)


def _stride(points: list[HistoryPoint]) -> int:
    """Return how many steps are at least between two points: as many as there are on the average of the older ones.

    It follows from the points themselves, so that it doubles when every second one is left out.
    """
    half = points[: MAX_HISTORY // 2]
    return (half[-1].step - half[0].step) // (len(half) - 1) if len(half) == MAX_HISTORY // 2 else 1
