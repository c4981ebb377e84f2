"""Run the one loop: observe, decide, write, act, wait. It is the same for laptop, cluster and simulation.

A platform observes and acts behind `Platform`; it decides nothing. `Reconciler.reconcile` takes the turns of one job;
`run` drives a queue of jobs with several workers, each job serial.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.decide import Decision, decide
from trainmaster.core.states.actions import Action, GiveOrders
from trainmaster.core.states.observed import Observed
from trainmaster.queueing import WORKED_ON, Key, RetryPauses, WorkQueue

log = logging.getLogger("trainmaster.loop")

# Turns that change the memory follow one another at once; more than this in a row is a bug, not a plan.
MAX_TURNS = 25
RETRY_SECONDS = 1.0
# A turn carries out AT_ONCE actions at a time, and begins no more after TURN_SECONDS: a job that makes thousands of
# pods goes back to the end of the queue, so that other jobs have their turns in between.
WORKERS = 64
AT_ONCE = 32
TURN_SECONDS = 1.0
# A job whose decision took long rests so many times as long before it is looked at again after a change.
REST_TIMES = 4
LEAST_REST_SECONDS = 0.02
# The observation was old; the platform may need a moment to see the change.
CONFLICT_SECONDS = 0.1
# A platform that cannot be reached is tried again at least this often, so that work goes on soon after its return.
LONGEST_PAUSE_SECONDS = 5.0
# A job whose own data makes a turn fail will fail again: it is tried so seldom that it costs nothing.
LONGEST_PAUSE_AFTER_ERROR_SECONDS = 60.0


class ConflictError(Exception):
    """Report that the job has changed since it was observed: observe again."""


class UnavailableError(Exception):
    """Report that the platform cannot be reached now; whether anything was done is not known."""


class Platform(Protocol):
    """A platform lets the loop see what exists, write the status, and act."""

    async def observe(self, key: Key) -> tuple[TrainingJob, Observed] | None:
        """Return the job and what exists of it; None when the job is gone.

        After a write that was not answered it first finds out whether it was done: to act on an older status than the
        written one would make replicas that are not wanted.

        Raises:
            ConflictError: it had to write the status of an unreadable job, which was changed meanwhile.
            UnavailableError: not now.
        """

    async def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> None:
        """Write the status if the job is still what `job` is. Then `observe` returns this status or a later one.

        Raises:
            ConflictError: the job was changed meanwhile; `observe` will see the change soon.
            UnavailableError: no answer.
        """

    async def apply(self, job: TrainingJob, action: Action) -> None:
        """Carry out one action. A refusal for good is remembered and seen by `observe`.

        Raises:
            UnavailableError: no answer, or not now.
        """


class Reconciler:
    """A reconciler brings one job closer to what it should be, one turn at a time."""

    def __init__(self, platform: Platform, now: Callable[[], datetime]) -> None:
        self._platform = platform
        self._now = now
        self._rests: dict[Key, float] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Take turns until nothing is left to do now. Return the seconds until the next look; None: only on news."""
        for _ in range(MAX_TURNS):
            try:
                seen = await self._platform.observe(key)
                if seen is None:
                    return None
                decision = self._decide(key, *seen)
                everything = await self._carry_out(seen[0], decision)
            except ConflictError:
                return CONFLICT_SECONDS
            if not everything:
                return 0.0
            if not decision.again:
                return None if decision.wake_at is None else max(0.0, (decision.wake_at - self._now()).total_seconds())
        log.error("%s: %d turns without an end; looking again later", key, MAX_TURNS)
        return RETRY_SECONDS

    def rest(self, key: Key) -> float:
        """Return for how many seconds the job rests after its last turn: deciding one blocks all others."""
        return self._rests.pop(key, 0.0)

    def _decide(self, key: Key, job: TrainingJob, observed: Observed) -> Decision:
        clock = asyncio.get_running_loop()
        began = clock.time()
        decision = decide(job, observed, self._now())
        rest = REST_TIMES * (clock.time() - began)
        if rest >= LEAST_REST_SECONDS:
            self._rests[key] = rest
        return decision

    async def _carry_out(self, job: TrainingJob, decision: Decision) -> bool:
        """Write the status first: all that follows can be derived from it. Return False if something is left to do."""
        if decision.status != job.status:
            await self._platform.write_status(job, decision.status)
        for action in decision.events:
            await self._platform.apply(job, action)
        actions = decision.actions
        if len(actions) > AT_ONCE:  # orders take no time, and must not wait for slow actions
            actions = tuple(sorted(actions, key=lambda action: not isinstance(action, GiveOrders)))
        return await _all([partial(self._platform.apply, job, action) for action in actions])


async def _all(calls: Sequence[Callable[[], Awaitable[None]]]) -> bool:
    """Begin as many calls as there is time for, AT_ONCE at a time, and await them. Return False where some are left.

    Then raise the first error: one refused pod must not keep the others from being made.
    """
    waiting, clock = iter(calls), asyncio.get_running_loop()
    end = clock.time() + TURN_SECONDS
    errors: list[Exception] = []
    left: list[object] = []

    async def work() -> None:
        for call in waiting:
            if clock.time() > end:
                left.append(call)
                return
            try:
                await call()
            except Exception as error:  # noqa: BLE001  raised below
                errors.append(error)

    await asyncio.gather(*(work() for _ in calls[:AT_ONCE]))
    if errors:
        raise errors[0]
    return not left


async def run(reconciler: Reconciler, queue: WorkQueue, workers: int = WORKERS) -> None:
    """Serve the queue for ever. One job's error never stops another's."""
    pauses = RetryPauses()
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_work(reconciler, queue, pauses))


async def _work(reconciler: Reconciler, queue: WorkQueue, pauses: RetryPauses) -> None:
    while True:
        key = await queue.get()
        WORKED_ON.set(key)
        try:
            delay = await _reconcile(reconciler, key, pauses)
        finally:
            queue.done(key, reconciler.rest(key))
        if delay is not None:
            queue.add_after(key, delay)


async def _reconcile(reconciler: Reconciler, key: Key, pauses: RetryPauses) -> float | None:
    """Return the seconds until the next look at the key; None where none is planned."""
    try:
        delay = await reconciler.reconcile(key)
    except UnavailableError as error:
        log.warning("%s: %s; trying again", key, error)
        return pauses.longer(key, LONGEST_PAUSE_SECONDS)
    except Exception:
        log.exception("%s: this job's turn failed; the others go on", key)
        return pauses.longer(key, LONGEST_PAUSE_AFTER_ERROR_SECONDS)
    pauses.forget(key)
    return delay


@contextlib.asynccontextmanager
async def running(
    reconciler: Reconciler, queue: WorkQueue, workers: int = WORKERS
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the loop as a background task for the length of a `with`."""
    task = asyncio.create_task(run(reconciler, queue, workers))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
