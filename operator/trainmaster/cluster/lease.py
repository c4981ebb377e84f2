"""One leader among several operators: a coordination.k8s.io/v1 Lease that one of them holds and the others watch.

Run by `hand`; asked by everything that writes. Clocks are never compared: a candidate takes the lease when it has not
seen it change for LEASE_SECONDS by its own clock, and a leader stops HOLD_SECONDS after it began the last renewal that
was answered, by its own clock. The difference is what a request may take that was sent just before
(docs/decisions/0080).
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Protocol

from trainmaster.cluster.client import Client, RefusalError
from trainmaster.loop import UnavailableError

log = logging.getLogger("trainmaster.lease")

LEASE_SECONDS = 3.0
HOLD_SECONDS = 2.0
RENEW_SECONDS = 1.0
LOOK_SECONDS = 0.5
# A request that is not answered by then is given up, and the next one asked.
ANSWER_SECONDS = 1.5

Document = dict[str, Any]


class LostError(Exception):
    """Another operator leads now. Whoever led before starts anew, with an empty memory."""


class Store(Protocol):
    """Where the lease is kept. Both raise RefusalError and UnavailableError as `Client` does."""

    async def get(self) -> Document:
        """The lease as it is now."""

    async def put(self, lease: Document) -> Document:
        """Replace it, if it still has this resourceVersion."""


class ClusterStore:
    """On the API server, in namespace/name. The chart makes the object; we may read and replace this one only."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

    async def get(self) -> Document:
        """As it is in etcd, not in a cache of the API server."""
        return await self._client.get(self._path)

    async def put(self, lease: Document) -> Document:
        """A conflict is a RefusalError with status 409."""
        return await self._client.request("PUT", self._path, lease, {"fieldManager": "trainmaster"})


def clock() -> float:
    """Seconds that go on while this process, or the whole machine, is stopped."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def an_identity() -> str:
    """Another one for every process: one that was killed and its successor are two."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


@dataclass
class Tenure:
    """What one candidate knows of the lease, by its own clock. Pure: `now` is given."""

    identity: str
    led: bool = False
    led_since: float = 0.0  # without a break
    _seen: tuple[object, ...] = ()
    _seen_at: float = 0.0
    _until: float = float("-inf")

    def leads(self, now: float) -> bool:
        """Whether it may write: nobody else can have the lease yet."""
        return now < self._until

    def saw(self, lease: Document, now: float) -> None:
        """The lease was read.

        Raises:
            LostError: it is somebody else's, and was ours.
        """
        spec = lease.get("spec") or {}
        seen = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        if self.led and self.holder != self.identity:
            self.resign()
            raise LostError(f"{self.holder or 'nobody'} leads now")

    @property
    def holder(self) -> str:
        """Whose it was when it was last read; empty: nobody's."""
        return str(self._seen[0] or "") if self._seen else ""

    def may_take(self, now: float) -> bool:
        """Whether it is ours, or free, or was not renewed for so long that its holder has stopped writing."""
        return self.holder in ("", self.identity) or now - self._seen_at >= LEASE_SECONDS

    def took(self, lease: Document, began: float, now: float) -> None:
        """Our write of the lease, begun at `began`, was answered with `lease`."""
        self.led = True
        self.saw(lease, now)
        if not self.leads(now):
            self.led_since = now
        self._until = began + HOLD_SECONDS

    def resign(self) -> None:
        """Write nothing more."""
        self._until = float("-inf")
        self.led = False


class Lease:
    """Keeps trying to lead. `leading` is set when it leads for the first time."""

    def __init__(self, store: Store, identity: str, now: Callable[[], float] = clock) -> None:
        self._store = store
        self._now = now
        self._lease: Document | None = None
        self._told = ""
        self.tenure = Tenure(identity)
        self.leading = asyncio.Event()

    @property
    def leads(self) -> bool:
        """Whether this operator may write at this moment."""
        return self.tenure.leads(self._now())

    @property
    def led_seconds(self) -> float:
        """How long this operator has led without a break, as far as it leads."""
        return max(0.0, self._now() - self.tenure.led_since)

    async def run(self) -> None:
        """Take the lease when it is free, and keep it.

        Raises:
            LostError: another operator leads now.
        """
        while True:
            began = self._now()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._turn(began)
                self._tell("")
            except (UnavailableError, TimeoutError) as error:
                self._tell(f"the lease cannot be reached: {str(error) or 'no answer in time'}")
            except RefusalError as error:
                self._refused(error)
            pause = RENEW_SECONDS if self.leads else LOOK_SECONDS
            await asyncio.sleep(max(0.0, began + pause - self._now()))

    async def release(self) -> None:
        """Give it up, so that the next one leads at once. Whoever calls writes nothing afterwards."""
        held = self.tenure.led
        self.tenure.resign()
        if held and self._lease:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._store.put(_with(self._lease, holderIdentity="", renewTime=_timestamp()))
            except (UnavailableError, TimeoutError, RefusalError) as error:
                log.warning("the lease is not given up, but runs out soon: %s", error)

    async def _turn(self, began: float) -> None:
        if self._lease is None or not self.tenure.led:
            self._lease = await self._store.get()
            self.tenure.saw(self._lease, self._now())
        if self.tenure.may_take(began):
            taken = await self._store.put(self._claim(self._lease))
            self._lease = taken
            self.tenure.took(taken, began, self._now())
            if not self.leading.is_set():
                log.info("this operator leads (%s)", self.tenure.identity)
                self.leading.set()

    def _claim(self, lease: Document) -> Document:
        """Ours from now on, or still ours. The times are for people: nobody decides by them."""
        spec, now = lease.get("spec") or {}, _timestamp()
        claim = {"holderIdentity": self.tenure.identity, "renewTime": now, "leaseDurationSeconds": int(LEASE_SECONDS)}
        if spec.get("holderIdentity") != self.tenure.identity:
            transitions = spec.get("leaseTransitions")
            claim |= {"acquireTime": now, "leaseTransitions": (transitions or 0) + 1}
        return _with(lease, **claim)

    def _refused(self, error: RefusalError) -> None:
        self._lease = None  # read it anew: somebody was faster, or a reply of ours was lost
        if error.status == HTTPStatus.NOT_FOUND:
            self._tell("the lease is gone: nobody may lead without it; install the chart again")
        elif error.status != HTTPStatus.CONFLICT:
            self._tell(f"the lease is refused: {error}")

    def _tell(self, trouble: str) -> None:
        """Once, and once that it is over."""
        if trouble != self._told:
            self._told = trouble
            log.warning("%s", trouble or "the lease can be reached again")


def _with(lease: Document, **spec: object) -> Document:
    return {**lease, "spec": {**(lease.get("spec") or {}), **spec}}


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
