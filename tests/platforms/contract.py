"""What the loop counts on: one suite of clauses for every platform (simulated, local, Kubernetes).

A clause is a coroutine that gets a world of its own. What a world can do beside its platform (start agents, kill
them, edit the job) stands in `World`; where one cannot do a thing, the clauses about it are not its affair.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Protocol

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.core.situation import revision
from trainmaster.core.states.actions import (
    CreateReplica,
    DeleteJob,
    DeleteObject,
    DeleteReplica,
    EnsureObject,
    GiveOrders,
    PostEvent,
)
from trainmaster.core.states.observed import Observed, Replica, ReplicaPhase
from trainmaster.loop import ConflictError, Platform, UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import Orders

SECONDS = 100.0
EDITS, REFUSES, DELETES, TELLS = "edits the job", "refuses pods", "deletes jobs", "tells events"
LOSES = "loses replies"


class World(Protocol):
    """A platform with one job on it, of two workers, and hands to play the rest."""

    key: Key
    can: frozenset[str]

    @property
    def platform(self) -> Platform:
        """What is held to the contract."""

    async def news(self, seconds: float) -> None:
        """Until something may have happened, or so many seconds have passed."""

    async def start(self, replica: Replica) -> None:
        """The replica's agent comes up, if it does not do so by itself."""

    async def kill(self, replica: Replica) -> None:
        """The replica's agent dies."""

    async def edit(self) -> None:
        """Somebody changes the job."""

    async def refuse(self, refused: bool) -> None:
        """From now on no pod may be created; or may again."""

    async def told(self) -> list[str]:
        """The reasons of all events that people can see."""

    def lose_next_reply(self) -> None:
        """The next status is written, but nobody hears that it was."""


Clause = Callable[[World], Awaitable[None]]
CLAUSES: list[tuple[str, Clause]] = []


def clause(needs: str = "") -> Callable[[Clause], Clause]:
    """Add a clause. `needs` is what a world must be able to do for it."""

    def add(test: Clause) -> Clause:
        CLAUSES.append((needs, test))
        return test

    return add


def clauses_for(can: frozenset[str]) -> list[Clause]:
    """Those that concern a world that can do this."""
    return [test for needs, test in CLAUSES if not needs or needs in can]


async def look(world: World) -> tuple[TrainingJob, Observed]:
    """What the platform observes of the job, which is there."""
    seen = await world.platform.observe(world.key)
    assert seen is not None
    return seen


async def until(world: World, holds: Callable[[Observed], bool]) -> Observed:
    """Observe until it holds."""
    clock = asyncio.get_running_loop()
    end = clock.time() + SECONDS
    while True:
        _, seen = await look(world)
        if holds(seen):
            return seen
        assert clock.time() < end, f"waited {SECONDS} s in vain: {seen}"
        await world.news(0.1)


async def a_replica(world: World, index: int = 0, incarnation: int = 0) -> Replica:
    """Have one created, and wait until it is seen."""
    job, _ = await look(world)
    await world.platform.apply(job, CreateReplica(names.WORKER, index, incarnation))
    name = names.replica_name(job.name, names.WORKER, index, incarnation)
    seen = await until(world, lambda seen: any(replica.name == name for replica in seen.replicas))
    return next(replica for replica in seen.replicas if replica.name == name)


async def an_agent(world: World, index: int = 0) -> Replica:
    """Have one created, and wait until its agent has called."""
    replica = await a_replica(world, index)
    await world.start(replica)
    return await seen_as(world, replica, lambda now: now.reporting is not None)


async def seen_as(world: World, replica: Replica, holds: Callable[[Replica], bool]) -> Replica:
    """Wait until it holds of the replica, which stays."""
    seen = await until(world, lambda seen: any(now.uid == replica.uid and holds(now) for now in seen.replicas))
    return next(now for now in seen.replicas if now.uid == replica.uid)


async def order(world: World, replica: Replica, orders: Orders) -> None:
    """Give orders to one agent."""
    job, _ = await look(world)
    await world.platform.apply(job, GiveOrders(((replica.uid, orders),)))


# The job and its status.


@clause()
async def of_a_new_job_nothing_is_there(world: World) -> None:
    job, seen = await look(world)
    assert (job.status.attempt, seen.replicas, seen.refused) == (0, (), ())


@clause()
async def a_job_that_does_not_exist_is_not_observed(world: World) -> None:
    assert await world.platform.observe(Key(world.key.namespace, "nobody")) is None


@clause()
async def a_status_is_observed_at_once_and_as_it_was_written(world: World) -> None:
    job, _ = await look(world)
    for attempt in (1, 2, 3):
        status = dataclasses.replace(
            job.status, phase=Phase.PENDING, attempt=attempt, incarnations={"worker-1": 2}, message="caf\u00e9"
        )
        await world.platform.write_status(job, status)
        job, _ = await look(world)
        assert job.status == status


@clause(EDITS)
async def a_status_for_a_job_that_somebody_changed_is_a_conflict(world: World) -> None:
    job, _ = await look(world)
    await world.edit()
    status = dataclasses.replace(job.status, attempt=1)
    try:
        await world.platform.write_status(job, status)
    except ConflictError:
        now, _ = await look(world)
        assert now.metadata.generation > job.metadata.generation, "the change is seen after the conflict"
        await world.platform.write_status(now, status)
        assert (await look(world))[0].status.attempt == 1
    else:
        raise AssertionError("it was written over somebody's change")


@clause(LOSES)
async def what_became_of_an_unanswered_status_is_found_out(world: World) -> None:
    job, _ = await look(world)
    status = dataclasses.replace(job.status, attempt=1)
    world.lose_next_reply()
    try:
        await world.platform.write_status(job, status)
    except UnavailableError:
        assert (await look(world))[0].status.attempt == 1
    else:
        raise AssertionError("nobody answered, and nobody minded")


@clause(DELETES)
async def a_deleted_job_is_not_observed(world: World) -> None:
    job, _ = await look(world)
    await world.platform.apply(job, DeleteJob())
    for _ in range(100):
        if await world.platform.observe(world.key) is None:
            break
        await world.news(0.1)
    assert await world.platform.observe(world.key) is None
    await world.platform.apply(job, DeleteJob())


@clause()
async def an_object_may_be_wished_for_twice_and_is_deleted_when_it_is_not_wished_for(world: World) -> None:
    job, seen = await look(world)
    for kind in seen.kinds:
        for _ in range(2):
            await world.platform.apply(job, EnsureObject(kind))
    await until(world, lambda seen: seen.objects == seen.kinds)
    for kind in seen.kinds:
        for _ in range(2):
            await world.platform.apply(job, DeleteObject(kind))
    await until(world, lambda seen: not seen.objects)


@clause(TELLS)
async def people_are_told(world: World) -> None:
    job, _ = await look(world)
    await world.platform.apply(job, PostEvent("Warning", "SomethingHappened", "It is told."))
    for _ in range(100):
        if "SomethingHappened" in await world.told():
            return
        await world.news(0.1)
    raise AssertionError(f"nobody was told: {await world.told()}")


# Replicas.


@clause()
async def a_replica_is_observed_in_its_place(world: World) -> None:
    replica = await a_replica(world, index=1, incarnation=3)
    assert (replica.role, replica.index, replica.incarnation) == (names.WORKER, 1, 3)
    assert replica.uid
    assert replica.alive
    assert replica.created > 0


@clause()
async def a_replica_tells_the_spec_that_it_was_made_of(world: World) -> None:
    replica = await a_replica(world)
    job, _ = await look(world)
    assert replica.revision == revision.revision_of(job, names.WORKER)
    assert replica.revision


@clause()
async def creating_twice_is_once(world: World) -> None:
    first = await a_replica(world)
    job, _ = await look(world)
    await asyncio.gather(*(world.platform.apply(job, CreateReplica(names.WORKER, 0, 0)) for _ in range(2)))
    await world.news(0.3)
    _, seen = await look(world)
    assert [replica.uid for replica in seen.replicas] == [first.uid]


@clause()
async def deleting_with_another_uid_does_nothing(world: World) -> None:
    replica = await a_replica(world)
    job, _ = await look(world)
    await world.platform.apply(job, DeleteReplica(replica.name, "not-its-uid"))
    await world.news(0.3)
    assert (await seen_as(world, replica, bool)).alive


@clause()
async def a_deleted_replica_is_not_alive_any_more(world: World) -> None:
    replica = await a_replica(world)
    job, _ = await look(world)
    for _ in range(2):
        await world.platform.apply(job, DeleteReplica(replica.name, replica.uid))
    await until(world, lambda seen: not any(now.alive for now in seen.replicas))
    await world.platform.apply(job, DeleteReplica(replica.name, replica.uid))


@clause()
async def its_successor_need_not_wait_for_its_end(world: World) -> None:
    old = await an_agent(world)
    job, _ = await look(world)
    await world.platform.apply(job, DeleteReplica(old.name, old.uid))
    new = await a_replica(world, incarnation=1)
    assert new.alive
    assert new.uid != old.uid


@clause(REFUSES)
async def a_refused_wish_is_seen_until_it_is_granted(world: World) -> None:
    await world.refuse(True)
    job, _ = await look(world)
    await world.platform.apply(job, CreateReplica(names.WORKER, 0, 0))
    seen = await until(world, lambda seen: bool(seen.refused))
    assert [obstacle.reason for obstacle in seen.refused] == ["Forbidden"]
    assert seen.refused[0].message
    await world.refuse(False)
    while (await look(world))[1].refused:
        await world.news(0.2)
        await world.platform.apply(job, CreateReplica(names.WORKER, 0, 0))
    await until(world, lambda seen: len(seen.replicas) == 1)


# Agents.


@clause()
async def an_agent_that_calls_in_is_heard(world: World) -> None:
    replica = await an_agent(world)
    beat = replica.heartbeat
    assert beat
    assert (beat.pod_uid, beat.role, beat.index, beat.state) == (replica.uid, names.WORKER, 0, AgentState.WAITING)
    assert replica.phase == ReplicaPhase.RUNNING
    assert replica.address


@clause()
async def orders_reach_the_agent_and_newer_ones_replace_them(world: World) -> None:
    replica = await an_agent(world)
    for attempt in (5, 6):
        orders = Orders(Verb.WAIT, attempt, "the contract says so")
        await order(world, replica, orders)
        await seen_as(world, replica, lambda now, orders=orders: _obeys(now, orders))  # type: ignore[misc]


def _obeys(replica: Replica, orders: Orders) -> bool:
    """It has heard, and done, what it was told."""
    beat = replica.heartbeat
    return beat is not None and (beat.attempt, beat.orders_seen) == (orders.attempt, orders.version)


@clause()
async def orders_for_one_agent_are_not_for_another(world: World) -> None:
    first, second = await an_agent(world, 0), await an_agent(world, 1)
    await order(world, first, Orders(Verb.WAIT, 7, "for the first"))
    await seen_as(world, first, lambda now: now.heartbeat is not None and now.heartbeat.attempt == 7)
    now = await seen_as(world, second, lambda now: now.heartbeat is not None)
    assert now.heartbeat
    assert now.heartbeat.attempt == 0


@clause()
async def orders_for_nobody_do_no_harm(world: World) -> None:
    replica = await an_agent(world)
    job, _ = await look(world)
    await world.platform.apply(job, GiveOrders((("nobody", Orders(Verb.WAIT, 9, "for nobody")),)))
    assert (await seen_as(world, replica, bool)).alive


@clause()
async def an_agent_that_is_sent_home_goes_with_the_code_that_it_was_given(world: World) -> None:
    replica = await an_agent(world)
    await order(world, replica, Orders(Verb.EXIT, 1, "it is over", exit_code=1))
    gone = await seen_as(world, replica, lambda now: not now.alive)
    assert gone.phase == ReplicaPhase.FAILED
    assert gone.ending
    assert gone.ending.exit_code == 1
    assert gone.reporting is None


@clause()
async def the_death_of_an_agent_is_seen(world: World) -> None:
    replica = await an_agent(world)
    await world.kill(replica)
    dead = await seen_as(world, replica, lambda now: not now.alive)
    assert dead.phase == ReplicaPhase.FAILED
    assert dead.ending
    assert dead.reporting is None
