"""What may be wrong for a moment, but must not last: looked at every second of a simulated life.

A second counts only if there was an operator that saw everything and could write: nobody else can put it right.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trainmaster.api.job_states import Phase
from trainmaster.wire import names

from tests.platforms.server import ApiServer

PATIENCE_SECONDS = 10


@dataclass
class Lasting:
    """`at_work`: whether there is such an operator. `violated` is told once of what has lasted too long."""

    server: ApiServer
    at_work: Callable[[], bool]
    violated: Callable[[str], None]
    _seconds: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Now, and every second from now on."""
        served = int(self.at_work())
        self._seconds = {wrong: self._seconds.get(wrong, 0) + served for wrong in self._wrongs()}
        for wrong, seconds in self._seconds.items():
            if seconds == PATIENCE_SECONDS and served:
                self.violated(f"for {seconds} s {wrong}")
        asyncio.get_running_loop().call_later(1.0, self.look)

    def _wrongs(self) -> Iterator[str]:
        yield from twins(self.server)
        yield from overdue(self.server)


def twins(server: ApiServer, older_than: float = 0.0) -> Iterator[str]:
    """Two pods in one place, of which neither is on its way out."""
    pods = [
        pod for pod in server.pods.values() if pod.replica.alive and server.now() - pod.replica.created >= older_than
    ]
    place = {pod.replica.uid: (str(pod.owner), names.replica_key(pod.replica.role, pod.replica.index)) for pod in pods}
    for one, other in itertools.combinations(sorted(place), 2):
        if place[one] == place[other]:
            yield f"{one} lived beside {other}"


def overdue(server: ApiServer) -> Iterator[str]:
    """Jobs that are past their deadline, or past the time that they may stay after their end."""
    for key, job in server.jobs.items():
        spec, status = job.spec, job.status
        limit, began = spec.active_deadline_seconds, status.start_time
        if status.finished:
            limit, began = spec.ttl_seconds_after_finished, status.completion_time
        counts = status.finished or status.phase != Phase.SUSPENDED
        if counts and limit is not None and began and server.now() > began.timestamp() + limit:
            yield f"{key} was overdue, {limit} s after {began} ({status.phase})"
