"""Remember since when pods have an obstacle for which the API server gives no time.

One such obstacle is a container that cannot start. The pod's creation is not that time: the pod may have waited long
for a node or an image, and must not be given up at the first short error after that. All is kept in memory: an operator
that starts again counts from its first look.
"""

import dataclasses
import time
from collections.abc import Iterable

from trainmaster.core.states.observed import Replica


class ObstacleTimes:
    """Keep the first sightings of all jobs, by the pod's uid."""

    def __init__(self) -> None:
        self._by_job: dict[str, dict[str, float]] = {}

    def dated(self, job_uid: str, replicas: Iterable[Replica]) -> tuple[Replica, ...]:
        """Return all replicas of a job as they are seen now, each obstacle with its time.

        Another reason does not restart the time, because a kubelet has several reasons for one trouble. A look without
        an obstacle does.
        """
        seen, now, before = tuple(replicas), time.time(), self._by_job.pop(job_uid, {})
        since = {
            replica.uid: before.get(replica.uid, now)
            for replica in seen
            if replica.obstacle is not None and replica.obstacle.since is None
        }
        if since:
            self._by_job[job_uid] = since
        return tuple(_dated(replica, since.get(replica.uid)) for replica in seen)

    def forget(self, job_uid: str) -> None:
        """Forget a job that is deleted."""
        self._by_job.pop(job_uid, None)


def _dated(replica: Replica, since: float | None) -> Replica:
    if replica.obstacle is None or since is None:
        return replica
    return dataclasses.replace(replica, obstacle=dataclasses.replace(replica.obstacle, since=since))
