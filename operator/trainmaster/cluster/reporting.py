"""Post Kubernetes events, which `kubectl describe` and `kubectl events` show.

Events are best effort and posted in the background: the loop never waits for an event and never fails because of one.
An event is not repeated within AGAIN_SECONDS.
"""

import asyncio
import logging
import secrets
import socket
import time
from datetime import UTC, datetime

from trainmaster.api.job import TrainingJob
from trainmaster.cluster.client import Client, Document, RefusalError
from trainmaster.core.states.actions import PostEvent
from trainmaster.loop import UnavailableError
from trainmaster.wire import names

log = logging.getLogger("trainmaster.reporting")

CONTROLLER = f"{names.GROUP}/operator"
AGAIN_SECONDS = 600.0
MOST_WAITING = 1000
MOST_REMEMBERED = 10_000
LONGEST_NOTE = 1024  # the API server's own limit
TRIES = 5

_Told = tuple[str, str, str]


class EventReporter:
    """Post events, one after the other."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: asyncio.Queue[Document] = asyncio.Queue(MOST_WAITING)
        self._told: dict[_Told, float] = {}

    def post(self, job: TrainingJob, event: PostEvent) -> None:
        """Queue an event, unless the same one was queued less than AGAIN_SECONDS ago."""
        if self._known((job.uid, event.reason, event.message)):
            return
        try:
            self._waiting.put_nowait(document(job, event))
        except asyncio.QueueFull:
            log.warning("too many events are waiting; not told: %s %s", event.reason, event.message)

    async def run(self) -> None:
        """Post the queued events, for ever."""
        while True:
            event = await self._waiting.get()
            for attempt in range(TRIES):
                try:
                    path = f"/apis/events.k8s.io/v1/namespaces/{event['metadata']['namespace']}/events"
                    await self._client.post(path, event)
                    break
                except UnavailableError:
                    await asyncio.sleep(2**attempt)
                except RefusalError as error:
                    log.warning("an event was refused: %s", error)
                    break

    def _known(self, told: _Told) -> bool:
        now = time.monotonic()
        if now - self._told.get(told, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return True
        self._told.pop(told, None)
        self._told[told] = now
        if len(self._told) > MOST_REMEMBERED:
            del self._told[next(iter(self._told))]
        return False


def document(job: TrainingJob, event: PostEvent) -> Document:
    """Return an events.k8s.io/v1 Event about a job."""
    note = event.message if len(event.message.encode()) <= LONGEST_NOTE else _clipped(event.message)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name}.{secrets.token_hex(8)}", "namespace": job.namespace},
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reportingController": CONTROLLER,
        "reportingInstance": socket.gethostname()[:128] or "operator",
        "action": "Reconcile",
        "reason": event.reason[:128],
        "type": event.type,
        "note": note,
        "regarding": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
        },
    }


def _clipped(text: str) -> str:
    """Return the text cut to at most LONGEST_NOTE bytes of UTF-8."""
    return text.encode()[: LONGEST_NOTE - 3].decode(errors="ignore") + "..."
