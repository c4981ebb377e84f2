"""Elect one leader among several operators by a coordination.k8s.io/v1 Lease.

Clocks of different machines are never compared. A candidate takes the lease when it has not seen it change for
LEASE_SECONDS by its own clock. A leader stops writing HOLD_SECONDS after it began the last renewal that was answered,
by its own clock. The difference is the time that a request may take that was sent just before (docs/decisions/0080).
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
# A request without an answer after so many seconds is given up, and sent again.
ANSWER_SECONDS = 1.5

Document = dict[str, Any]


class LostError(Exception):
    """Another operator leads now. The former leader starts again with an empty memory."""


class LeaseStore(Protocol):
    """A store is where the lease is kept. Both methods raise RefusalError and UnavailableError as `Client` does."""

    async def get(self) -> Document:
        """Return the lease as it is now."""

    async def put(self, lease: Document) -> Document:
        """Replace the lease if it still has this resourceVersion."""


class ClusterStore:
    """Keep the lease on the API server, as namespace/name.

    The chart creates it; the operator may only read and replace it.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

    async def get(self) -> Document:
        """Return the lease as it is in etcd, not in a cache of the API server."""
        return await self._client.get(self._path)

    async def put(self, lease: Document) -> Document:
        """Replace the lease. A conflict is a RefusalError with status 409."""
        return await self._client.request("PUT", self._path, lease, {"fieldManager": "trainmaster"})


def clock() -> float:
    """Return a monotonic time in seconds, which goes on while the process or the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def an_identity() -> str:
    """Return a name that is different for each process, so that a killed operator and its successor are told apart."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


@dataclass
class Tenure:
    """Hold what one candidate knows of the lease, by its own clock. It is pure: the time is passed in as `now`."""

    identity: str
    led: bool = False
    led_since: float = 0.0  # since when it has led without a break
    _seen: tuple[object, ...] = ()
    _seen_at: float = 0.0
    _until: float = float("-inf")

    def leads(self, now: float) -> bool:
        """Return whether this candidate may write: no other one can have the lease yet."""
        return now < self._until

    def saw(self, lease: Document, now: float) -> None:
        """Note that the lease was read.

        Raises:
            LostError: this candidate led, and another one holds the lease now.
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
        """Return the holder that was read last; empty if there is none."""
        return str(self._seen[0] or "") if self._seen else ""

    def may_take(self, now: float) -> bool:
        """Return whether the lease is ours, or free, or unrenewed for so long that its holder writes no more."""
        return self.holder in ("", self.identity) or now - self._seen_at >= LEASE_SECONDS

    def took(self, lease: Document, began: float, now: float) -> None:
        """Note that our write of the lease, which began at `began`, was answered with `lease`."""
        self.led = True
        self.saw(lease, now)
        if not self.leads(now):
            self.led_since = now
        self._until = began + HOLD_SECONDS

    def resign(self) -> None:
        """Stop leading: nothing may be written any more."""
        self._until = float("-inf")
        self.led = False


class Lease:
    """Try for ever to lead. `leading` is set when this operator leads for the first time."""

    def __init__(self, store: LeaseStore, identity: str, now: Callable[[], float] = clock) -> None:
        self._store = store
        self._now = now
        self._lease: Document | None = None
        self._told = ""
        self.tenure = Tenure(identity)
        self.leading = asyncio.Event()

    @property
    def leads(self) -> bool:
        """Return whether this operator may write at this moment."""
        return self.tenure.leads(self._now())

    @property
    def led_seconds(self) -> float:
        """Return for how many seconds this operator has led without a break.

        This has no meaning while it does not lead.
        """
        return max(0.0, self._now() - self.tenure.led_since)

    async def run(self) -> None:
        """Take the lease when it is free, and renew it.

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
                self._lease = None  # read it again: another candidate was faster, or an answer was lost
                if error.status == HTTPStatus.NOT_FOUND:
                    self._tell("the lease is gone: nobody may lead without it; install the chart again")
                elif error.status != HTTPStatus.CONFLICT:
                    self._tell(f"the lease is refused: {error}")
            pause = RENEW_SECONDS if self.leads else LOOK_SECONDS
            await asyncio.sleep(max(0.0, began + pause - self._now()))

    async def release(self) -> None:
        """Give the lease up, so that another operator leads at once. The caller writes nothing afterwards."""
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
            # The lease's times are for people: no operator decides by them.
            spec, now = self._lease.get("spec") or {}, _timestamp()
            claim = {
                "holderIdentity": self.tenure.identity,
                "renewTime": now,
                "leaseDurationSeconds": int(LEASE_SECONDS),
            }
            if spec.get("holderIdentity") != self.tenure.identity:
                transitions = spec.get("leaseTransitions")
                claim |= {"acquireTime": now, "leaseTransitions": (transitions or 0) + 1}
            taken = await self._store.put(_with(self._lease, **claim))
            self._lease = taken
            self.tenure.took(taken, began, self._now())
            if not self.leading.is_set():
                log.info("this operator leads (%s)", self.tenure.identity)
                self.leading.set()

    def _tell(self, trouble: str) -> None:
        """Log a trouble once, and log once that it is over (empty)."""
        if trouble != self._told:
            self._told = trouble
            log.warning("%s", trouble or "the lease can be reached again")


def _with(lease: Document, **spec: object) -> Document:
    return {**lease, "spec": {**(lease.get("spec") or {}), **spec}}


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
