"""Tell how far a task has got that reads objects of the API server for ever, and whether it is alive."""

import asyncio
import time

from trainmaster.cluster.client import Client

# This is longer than any silence of a watch, pause or wait for kopf together: then the task itself hangs.
HUNG_SECONDS = 240.0


class ScopeReader:
    """ScopeReader reads one kind of object in one namespace, or in all (scope "")."""

    def __init__(self, client: Client, path: str, scope: str) -> None:
        self._client = client
        self._path = path
        self._scope = scope
        self._failures = 0  # in a row
        self._pulse = time.monotonic()
        self.synced = asyncio.Event()  # set when everything has been read
        self.answered = asyncio.Event()  # set then, and when we may not read this namespace

    @property
    def hung(self) -> bool:
        """Return whether its task has neither succeeded nor failed at anything for HUNG_SECONDS."""
        return self.age > HUNG_SECONDS

    @property
    def age(self) -> float:
        """Return the seconds since it last succeeded or failed at something."""
        return time.monotonic() - self._pulse

    def covers(self, namespace: str) -> bool:
        """Return whether it reads this namespace."""
        return self._scope in ("", namespace)
