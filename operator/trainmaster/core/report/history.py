"""Keep the curve of a job in its status: few enough points to cost nothing, spread over all of the training.

Points are taken from progress that is written anyway. When there are too many, every second one is left out and new
ones come half as often. Steps that are trained again replace their points, so the curve is that of the final model.
"""

from trainmaster.api.status import (
    MAX_EVALUATIONS,
    MAX_HISTORY,
    EvaluationPoint,
    HistoryPoint,
    JobProgress,
    TrainingJobStatus,
)

_MOST_FIGURES, _LONGEST_NAME = 3, 64


def extended_history(status: TrainingJobStatus, progress: JobProgress) -> tuple[HistoryPoint, ...]:
    """Return the history with this progress in it, if it is time for a point, or the job has ended."""
    if not progress.step:
        return status.history
    points = [point for point in status.history if point.step < progress.step]
    if (
        points
        and not status.finished
        and progress.step - points[-1].step < _stride([point.step for point in points], MAX_HISTORY)
    ):
        return tuple(points)
    if len(points) == MAX_HISTORY:
        points = points[1::2]  # the newest stays
    made = HistoryPoint(step=progress.step, loss=progress.loss, samples_per_second=progress.samples_per_second)
    return (*points, made)


def evaluations(status: TrainingJobStatus, progress: JobProgress) -> tuple[EvaluationPoint, ...]:
    """Return the evaluations with the newest one in them, as few as there are points of the other curve.

    The newest is always there: it takes the place of the one before where that came too soon for a point. The best one
    stays, where the job says by what it is the best.
    """
    new = progress.evaluation
    if new is None or not new.figures or not 0 < new.step <= progress.step:
        return tuple(one for one in status.evaluations if one.step <= progress.step or not progress.step)
    kept = [one for one in status.evaluations if one.step < new.step]
    steps = [one.step for one in kept]
    too_soon = len(kept) > 1 and steps[-1] - steps[-2] < _stride(steps[:-1], MAX_EVALUATIONS)
    if too_soon and steps[-1] != new.best_step:
        kept.pop()
    if len(kept) >= MAX_EVALUATIONS:
        kept = [one for place, one in enumerate(kept) if place % 2 or one.step == new.best_step]
    named = {name: value for name, value in sorted(new.figures.items()) if len(name) <= _LONGEST_NAME}
    return (*kept, EvaluationPoint(step=new.step, figures=dict(list(named.items())[:_MOST_FIGURES])))


def _stride(steps: list[int], most: int) -> int:
    """Return how many steps are at least between two points: as many as there are on the average of the older ones.

    It follows from the points themselves, so that it doubles when every second one is left out.
    """
    half = steps[: most // 2]
    return (half[-1] - half[0]) // (len(half) - 1) if len(half) == most // 2 else 1
