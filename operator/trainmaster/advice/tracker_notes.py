"""Explain in sentences which trackers are told of a job."""

from collections.abc import Iterator

from trainmaster.api.job import TrainingJob
from trainmaster.wire import trackers


def tracker_notes(job: TrainingJob) -> Iterator[str]:
    """Yield who is told the lines of metrics.jsonl, by the spec alone: what variables choose shows when it runs."""
    asked = job.spec.training.trackers
    if asked is None:
        return
    for name, options in asked.chosen.items():
        traits = trackers.TRACKERS[name]
        where = options.get("url") or options.get("folder") or options.get("mode")
        needs = f"; its library must be there ({traits.install})" if traits.library else ""
        yield f"{traits.title}{f' ({where})' if where else ''}, by a process beside rank 0{needs}."
    if not asked.chosen:
        yield "No tracker, whatever variables are set."
