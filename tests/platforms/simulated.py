"""SimulatedPlatform: the loop's `Platform` over the simulated API server, with a cache that lags and calls that fail.

Everything here belongs to one life of an operator: when it dies, the next one starts with an empty memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.situation import revision
from trainmaster.core.states import actions
from trainmaster.core.states.observed import Observed, Obstacle, Replica, ReplicaPhase
from trainmaster.intake import Intake
from trainmaster.loop import ConflictError, UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.messages import Orders

from tests.platforms.server import (
    AlreadyExistsError,
    ApiServer,
    Change,
    NotFoundError,
    Pod,
    RefusedError,
    StaleError,
)

AGAIN_SECONDS = 5.0  # a wish that was refused is made again

# What every call passes on its way: (what it is, what it does) -> its result, or a fault.
Gate = Callable[[str, Callable[[], object]], Awaitable[object]]


@dataclass
class View:
    """What one operator sees: all objects at some moment, then every change after a while, in order."""

    server: ApiServer
    random: Random
    on_change: Callable[[Key], None]
    on_pod_gone: Callable[[str], None]
    lag: float = 0.05
    jobs: dict[Key, TrainingJob] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    objects: set[tuple[str, str]] = field(default_factory=set)  # kind, job
    cut: bool = False
    closed: bool = False
    listing: bool = False
    suffers: Callable[[], str] = lambda: ""  # what becomes of an event: "broken", "repeated", or nothing
    _known: dict[tuple[str, str], int] = field(default_factory=dict)
    _coming: deque[tuple[float, Change]] = field(default_factory=deque)
    _recent: deque[Change] = field(default_factory=lambda: deque(maxlen=20))
    _timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """List everything, and watch from there."""
        self.relist()
        self.server.watchers.append(self._note)

    def close(self) -> None:
        """Nobody looks any more."""
        self.closed = True
        self.server.watchers.remove(self._note)
        if self._timer:
            self._timer.cancel()

    def relist(self) -> None:
        """A consistent list: what is not in it has gone, whether or not anybody told us. Ends a cut."""
        self.cut = False
        self._coming.clear()
        there: dict[tuple[str, str], Change] = {}
        for key, job in self.server.jobs.items():
            there["job", str(key)] = Change(int(job.metadata.resource_version), ("job", str(key)), job)
        for name, pod in self.server.pods.items():
            there["pod", name] = Change(pod.version, ("pod", name), pod)
        for kind, key in sorted(self.server.objects):
            there[kind, str(key)] = Change(self.server.version, (kind, str(key)), str(key))
        mine = [("job", str(key)) for key in self.jobs] + [("pod", name) for name in self.pods]
        mine += sorted(self.objects)
        self.listing = True
        for gone in (name for name in mine if name not in there):
            self.see(Change(self.server.version, gone, None))
        for change in there.values():
            self.see(change)
        self.listing = False

    def read(self, key: Key) -> None:
        """Ask the server for one job."""
        job = self.server.jobs.get(key)
        version = int(job.metadata.resource_version) if job else self.server.version
        self.see(Change(version, ("job", str(key)), job))

    def replay(self) -> None:
        """The watch was opened anew at an older version: the last changes come once more."""
        self._coming.extendleft((0.0, change) for change in reversed(list(self._recent)))
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._deliver_soon()

    def see(self, change: Change) -> None:
        """One change arrives. What is older than what is known already has no say."""
        if change.version <= self._known.get(change.name, 0):
            return
        self._known[change.name] = change.version
        kind, name = change.name
        if kind == "job":
            self._see_job(Key(*name.split("/")), change.value)
        elif kind == "pod":
            self._see_pod(name, change.value)
        else:
            (self.objects.add if change.value else self.objects.discard)(change.name)
            self.on_change(Key(*name.split("/")))

    def _see_job(self, key: Key, value: object) -> None:
        if isinstance(value, TrainingJob):
            self.jobs[key] = value
        else:
            self.jobs.pop(key, None)
        self.on_change(key)

    def _see_pod(self, name: str, value: object) -> None:
        before = self.pods.pop(name, None)
        if isinstance(value, Pod):
            self.pods[name] = value
        after = self.pods.get(name)
        if before and (after is None or after.replica.uid != before.replica.uid):
            self.on_pod_gone(before.replica.uid)
        for pod in (before, after):
            if pod:
                self.on_change(pod.owner)

    def look_again(self, key: Key) -> None:
        """As if the job had changed, unless nobody looks any more."""
        if not self.closed:
            self.on_change(key)

    def _note(self, change: Change) -> None:
        if self.cut:
            return
        trouble = self.suffers()
        if trouble == "broken":
            self.cut = True
            asyncio.get_running_loop().call_later(self.random.uniform(0.2, 3.0), self._mend)
            return
        if trouble == "repeated":
            asyncio.get_running_loop().call_later(self.random.expovariate(1.0), self._repeat, change)
        due = asyncio.get_running_loop().time() + self.random.uniform(0, 2 * self.lag)
        if self._coming:
            due = max(due, self._coming[-1][0])  # a watch keeps the order
        self._coming.append((due, change))
        self._recent.append(change)
        self._deliver_soon()

    def _mend(self) -> None:
        """The watch that broke is opened anew, with a list."""
        if self.cut and not self.closed:
            self.relist()

    def _repeat(self, change: Change) -> None:
        if not self.closed:
            self.see(change)

    def _deliver_soon(self) -> None:
        if self._timer is None and self._coming:
            self._timer = asyncio.get_running_loop().call_at(self._coming[0][0], self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._coming and self._coming[0][0] <= now:
            self.see(self._coming.popleft()[1])
        self._deliver_soon()


class SimulatedPlatform:
    """`gate` stands before every call: it delays, loses, refuses, or kills the operator."""

    def __init__(self, server: ApiServer, view: View, intake: Intake, gate: Gate) -> None:
        self.on_orders: Callable[[str, Orders], None] = lambda _uid, _orders: None
        self._server = server
        self._view = view
        self._intake = intake
        self._gate = gate
        self._unsure: set[Key] = set()
        self._began = 0.0
        self._refused: dict[tuple[str, str], Obstacle] = {}
        self._rests: dict[tuple[str, str], float] = {}  # until when a refused wish is not made again
        self.events: list[actions.PostEvent] = []

    async def observe(self, key: Key) -> tuple[TrainingJob, Observed] | None:
        """As the cache and the agents tell it; what became of an unanswered write is asked for first."""
        if key in self._unsure:
            await self._gate("read", lambda: self._view.read(key))
            self._unsure.discard(key)
        job = self._view.jobs.get(key)
        if job is None:
            return None
        mine = (pod.replica for name, pod in sorted(self._view.pods.items()) if pod.owner_uid == job.uid)
        seen = tuple(self._intake.heard(replica) for replica in mine)
        refused = tuple(obstacle for (uid, _), obstacle in self._refused.items() if uid == job.uid)
        began = self._began = self._began or self._server.now()
        objects = frozenset(kind for kind, owner in self._view.objects if owner == str(key))
        return job, Observed(seen, objects, tuple(dict.fromkeys(refused)), began, kinds=self._server.kinds)

    async def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> None:
        """Only if nobody changed the job meanwhile."""
        key = Key(job.namespace, job.name)
        self._unsure.add(key)
        try:
            stored = await self._gate(f"status {status.phase}", lambda: self._server.write_status(job, status))
        except (StaleError, NotFoundError) as error:
            raise ConflictError(str(error)) from error
        self._unsure.discard(key)
        if isinstance(stored, TrainingJob):
            self._view.see(Change(int(stored.metadata.resource_version), ("job", str(key)), stored))

    async def apply(self, job: TrainingJob, action: actions.Action) -> None:
        """One action, as the server or the agents take it."""
        match action:
            case actions.CreateReplica():
                await self._create(job, action)
            case actions.DeleteReplica(name=name, uid=uid):
                await self._quietly(f"delete {name}", lambda: self._server.delete_pod(name, uid))
            case actions.EnsureObject(kind):
                key = Key(job.namespace, job.name)
                await self._quietly(kind.lower(), lambda: self._server.create_object(kind, key))
            case actions.DeleteObject(kind):
                key = Key(job.namespace, job.name)
                await self._quietly(f"delete {kind.lower()}", lambda: self._server.delete_object(kind, key))
            case actions.DeleteJob():
                key = Key(job.namespace, job.name)
                await self._quietly("delete job", lambda: self._server.delete_job(key, job.uid))
            case actions.PostEvent():
                await self._gate("event", lambda: self.events.append(action))
            case actions.GiveOrders(orders=orders):
                await self._gate("orders", lambda: self._give(job, orders))

    def _give(self, job: TrainingJob, orders: tuple[tuple[str, Orders], ...]) -> None:
        for uid, order in orders:
            self.on_orders(job.uid, order)
            self._intake.give_orders(uid, order)

    async def _create(self, job: TrainingJob, wish: actions.CreateReplica) -> None:
        name = names.replica_name(job.name, wish.role, wish.index, wish.incarnation)
        if self._server.now() < self._rests.get((job.uid, name), 0.0):
            return
        replica = Replica(wish.role, wish.index, wish.incarnation, name, "", ReplicaPhase.PENDING, 0.0)
        replica = dataclasses.replace(replica, revision=revision.revision_of(job, wish.role))
        try:
            await self._quietly(f"create {name}", lambda: self._make(job, replica))
        except RefusedError as error:
            self._remember(job, dataclasses.replace(error.obstacle, name=name))
        else:
            self._refused.pop((job.uid, name), None)

    def _make(self, job: TrainingJob, replica: Replica) -> Pod:
        there = self._server.pods.get(replica.name)
        if there and there.owner_uid != job.uid:
            raise RefusedError(Obstacle("NameTaken", f"{replica.name} does not belong to this job"))
        return self._server.create_pod(job, replica)

    def _remember(self, job: TrainingJob, obstacle: Obstacle) -> None:
        """Since when, and ask again in a while: nothing else would wake us for it."""
        before = self._refused.get((job.uid, obstacle.name))
        since = before.since if before else self._server.now()
        self._refused[job.uid, obstacle.name] = dataclasses.replace(obstacle, since=since)
        self._rests[job.uid, obstacle.name] = self._server.now() + AGAIN_SECONDS
        asyncio.get_running_loop().call_later(AGAIN_SECONDS + 0.01, self._view.look_again, Key(job.namespace, job.name))

    async def _quietly(self, call: str, effect: Callable[[], object]) -> None:
        """It is as wished already: that is success. What the server answers is known at once, as in cluster/cache."""
        with contextlib.suppress(AlreadyExistsError, NotFoundError):
            answer = await self._gate(call, effect)
            if isinstance(answer, Pod):
                self._view.see(Change(answer.version, ("pod", answer.replica.name), answer))
            if isinstance(answer, Change):
                self._view.see(answer)


__all__ = ["SimulatedPlatform", "UnavailableError", "View"]
