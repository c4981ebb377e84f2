"""The loop: status first, then actions; errors and conflicts cost a pause, and never another job."""

# ruff: noqa: D102, ARG002  a platform's methods are explained by the protocol

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from trainmaster import loop
from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.states.actions import Action
from trainmaster.core.states.observed import Observed
from trainmaster.queueing import Key, WorkQueue

from tests.builders import a_job
from tests.platforms import clock

KEY = Key("lab", "digits")
SUSPENDED = a_job().where(suspend=True).build()


@dataclass
class Notebook:
    """A platform that notes every call, and fails when it is told to."""

    jobs: dict[Key, TrainingJob] = field(default_factory=lambda: {KEY: a_job().with_workers(2).build()})
    calls: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    trouble: dict[str, list[BaseException]] = field(default_factory=dict)

    async def observe(self, key: Key) -> tuple[TrainingJob, Observed] | None:
        self.times.append(asyncio.get_running_loop().time())
        self._note(f"observe {key.name}")
        job = self.jobs.get(key)
        return (job, Observed()) if job else None

    async def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> None:
        self._note(f"write {status.phase}")
        self.jobs[Key(job.namespace, job.name)] = job.model_copy(update={"status": status})

    async def apply(self, job: TrainingJob, action: Action) -> None:
        self._note(type(action).__name__)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        errors = self.trouble.get(call)
        if errors:
            raise errors.pop(0)


def reconcile(platform: Notebook) -> float | None:
    """One call, until nothing is left to do now."""
    return clock.run(loop.Reconciler(platform, clock.now).reconcile(KEY))


def serve(platform: Notebook, seconds: float, meanwhile: Callable[[WorkQueue], Awaitable[None]] | None = None) -> None:
    """The loop with all its workers for some virtual seconds."""

    async def scenario() -> None:
        queue = WorkQueue()
        for key in platform.jobs:
            queue.add(key)
        async with loop.running(loop.Reconciler(platform, clock.now), queue):
            if meanwhile:
                await meanwhile(queue)
            await asyncio.sleep(seconds)

    clock.run(scenario())


def test_the_status_is_written_before_anything_is_done() -> None:
    platform = Notebook()
    reconcile(platform)
    assert platform.calls == ["observe digits", "write Pending", "EnsureObject", "CreateReplica", "CreateReplica"]


def test_a_change_of_memory_is_written_and_observed_again_before_anything_is_done() -> None:
    platform = Notebook({KEY: SUSPENDED})
    reconcile(platform)
    assert platform.calls == ["observe digits", "write Suspended", "PostEvent", "observe digits"]


def test_it_says_when_it_wants_to_look_again() -> None:
    assert reconcile(Notebook({KEY: a_job().where(activeDeadlineSeconds=60).build()})) == 60.0


def test_a_job_that_is_gone_is_forgotten() -> None:
    assert reconcile(Notebook(jobs={})) is None


def test_after_a_conflict_nothing_is_done_and_it_looks_again_soon() -> None:
    platform = Notebook(trouble={"write Pending": [loop.ConflictError()]})
    assert reconcile(platform) == loop.CONFLICT_SECONDS
    assert platform.calls == ["observe digits", "write Pending"]


def test_a_conflict_is_one_also_while_it_looks() -> None:
    platform = Notebook(trouble={"observe digits": [loop.ConflictError()]})
    assert reconcile(platform) == loop.CONFLICT_SECONDS
    assert platform.calls == ["observe digits"]


def test_one_replica_that_cannot_be_made_does_not_keep_the_others_from_it() -> None:
    platform = Notebook(trouble={"CreateReplica": [loop.UnavailableError("busy")]})
    serve(platform, seconds=1)
    assert platform.calls.count("CreateReplica") == 4


def test_a_platform_that_is_away_is_asked_less_and_less_but_soon_enough() -> None:
    platform = Notebook(trouble={"observe digits": [loop.UnavailableError("away") for _ in range(12)]})
    serve(platform, seconds=60)
    pauses = [after - before for before, after in zip(platform.times, platform.times[1:], strict=False)]
    assert pauses[:11] == [0.25, 0.5, 1, 2, 4, 5, 5, 5, 5, 5, 5]


def test_a_job_whose_turn_fails_is_tried_seldom_and_stops_nobody() -> None:
    poison = a_job().named("poison").build()
    platform = Notebook(trouble={"observe poison": [ValueError("poison") for _ in range(1000)]})
    platform.jobs[Key("lab", "poison")] = poison
    serve(platform, seconds=3600)
    assert platform.calls.count("observe poison") < 70
    assert platform.jobs[KEY].status.phase == Phase.PENDING


def test_a_plan_that_never_ends_is_a_bug_and_costs_a_pause() -> None:
    class Forgetful(Notebook):
        async def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> None:
            self._note("forgotten")

    platform = Forgetful({KEY: SUSPENDED})
    assert reconcile(platform) == loop.RETRY_SECONDS
    assert platform.calls.count("forgotten") == loop.MAX_TURNS
