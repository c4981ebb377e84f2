"""Since when pods have an obstacle of which the API server tells no time, as that of a container that cannot start.

Not since the pod was made: it may have waited for a place, or for a long pull, and must not be given up at the first
hiccup after that. Kept in memory by `platform`: an operator that starts anew counts from its first look.
"""

import dataclasses
import time
from collections.abc import Iterable

from trainmaster.core.observed import Obstacle, Replica


class Sightings:
    """Of all jobs, by the uid of the pod."""

    def __init__(self) -> None:
        self._by_job: dict[str, dict[str, float]] = {}

    def dated(self, job_uid: str, replicas: Iterable[Replica]) -> tuple[Replica, ...]:
        """All replicas of a job as they are seen now, each obstacle with its time.

        Another reason is no new beginning: a kubelet has several words for one trouble. A look without any is.
        """
        seen, now, before = tuple(replicas), time.time(), self._by_job.pop(job_uid, {})
        since = {replica.uid: before.get(replica.uid, now) for replica in seen if _timeless(replica.obstacle)}
        if since:
            self._by_job[job_uid] = since
        return tuple(_dated(replica, since.get(replica.uid)) for replica in seen)

    def forget(self, job_uid: str) -> None:
        """The job has gone."""
        self._by_job.pop(job_uid, None)


def _timeless(obstacle: Obstacle | None) -> bool:
    return obstacle is not None and obstacle.since is None


def _dated(replica: Replica, since: float | None) -> Replica:
    if replica.obstacle is None or since is None:
        return replica
    return dataclasses.replace(replica, obstacle=dataclasses.replace(replica.obstacle, since=since))
