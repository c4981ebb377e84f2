"""Scripts of several replicas: a rank keeps its own state after each step, and a neighbour what it alone has."""

from __future__ import annotations

import os
import random
import shutil
import signal
from dataclasses import replace
from typing import Any

from trainmaster_trainer.checkpoint.memory import slots_in
from trainmaster_trainer.checkpoint.slot import SlotError, Snapshot, look

from tests.trainer.ranks import Job, NewJob, Running

STEP = 0.1  # seconds, half of which rank 0 waits for the other in an exchange
APART = 12  # steps after which snapshots come more often than exchanges


def a_job(new_job: NewJob, name: str = "job", **changes: Any) -> Job:
    """A job of a script with a state in memory, and no checkpoint before its end."""
    plan = {"task": None, "command": ("python", "script.py"), "steps": 0, "global_batch_size": 0}
    return replace(new_job(name, **plan, checkpoint_every=1000, **changes), memory=True)


def replicated(job: Job, attempt: int = 1, world: int = 2, **arguments: Any) -> Running:
    """Start an attempt of `keeping_scripts.replicated`."""
    return job.calling("keeping_scripts:replicated", **arguments).start(world, attempt)


def trained(job: Job, attempt: int = 1, world: int = 2, **arguments: Any) -> list[Any]:
    """What the ranks of an attempt answer at its end."""
    running = replicated(job, attempt, world, **arguments)
    assert running.wait() == [0] * world, running.output()
    return [job.answer(rank, attempt) for rank in range(world)]


def held(job: Job, pod: int) -> list[Snapshot]:
    """The whole snapshots in a pod's memory, by step."""
    found = []
    for path in slots_in(job.folder / f"memory-{pod}"):
        try:
            found.append(look(path))
        except SlotError:
            continue  # a kill met it
    return sorted(found, key=lambda one: one.owner.step)


def passed_on(job: Job, pod: int) -> list[int]:
    """The steps of those that have what the neighbour gave."""
    return [one.owner.step for one in held(job, pod) if one.owner.carries >= 0]


def test_a_killed_rank_costs_no_step_however_long_an_exchange_takes(new_job: NewJob) -> None:
    """With exchanges alone, snapshots would be as rare as these. A lost replica costs the steps since the last one."""
    job = a_job(new_job)
    running = replicated(job, until=10_000, seconds=STEP)
    running.reach(APART + random.Random(1).randrange(6))  # noqa: S311 (no secret)
    os.kill(running.pids[1], signal.SIGKILL)
    running.wait_for(1)
    running.kill()
    done = min(page.read().step for page in running.pages)
    for pod in (0, 1):
        steps = [one.owner.step for one in held(job, pod)]
        assert done in steps
        assert len(steps) < 3 or steps[-1] - steps[-2] == 1, steps
        assert len(passed_on(job, pod)) < len(steps), "seldom"
    kept = passed_on(job, 1)
    lost = replace(job, folder=shutil.copytree(job.folder, job.folder.with_name("lost")))
    shutil.rmtree(lost.folder / "memory-0")
    calm = trained(a_job(new_job, "calm"), until=done + 3)
    for one, whence in ((job, [done, done + 1]), (lost, kept)):
        again = trained(one, 2, until=done + 3)
        assert {rank["done"] for rank in again} in [{step} for step in whence]
        assert [{**rank, "done": 0} for rank in again] == calm


def test_a_rank_may_die_at_each_line_of_an_exchange(new_job: NewJob) -> None:
    """All go on from the same step, whether it had its own snapshot or not, or its neighbour's part as well."""
    job = a_job(new_job, memory_every=1)
    done = 0
    for attempt, line in enumerate((55, 140, 240), 1):
        rank = attempt % 2
        running = replicated(job, attempt, until=100, dies=(rank, done + 3, line))
        assert running.wait_for(rank) == -signal.SIGKILL
        running.kill()
        resumed = {page.read().resumed_step for page in running.pages}
        assert len(resumed) == 1
        assert resumed <= {done, done + 1}
        done = min(page.read().step for page in running.pages)
    again = trained(job, 9, until=done + 3)
    assert len({one["done"] for one in again}) == 1
    assert again[0]["done"] in (done, done + 1)
    calm = trained(a_job(new_job, "calm"), until=done + 3)
    assert [{**one, "done": 0} for one in again] == calm


def test_where_memory_is_short_each_snapshot_waits_for_the_neighbour(new_job: NewJob) -> None:
    """Two slots, as where `memoryEverySteps` says after which step both come. A lost replica costs as little then."""
    job = replace(a_job(new_job), variables={"LITTLE_MEMORY": "300000"})
    trained(job, until=APART, seconds=STEP)
    assert "Each snapshot waits for the neighbour" in (job.folder / "output-1-0").read_text()
    fixed = a_job(new_job, "fixed", memory_every=2)
    trained(fixed, until=9)
    for one in (job, fixed):
        steps = [snapshot.owner.step for snapshot in held(one, 0)]
        assert len(steps) == 2
        assert passed_on(one, 0) == passed_on(one, 1) == steps
    assert steps == [6, 8]


def test_a_rank_without_room_for_its_snapshot_tells_the_others_in_the_exchange(new_job: NewJob) -> None:
    """None waits for it, and none takes snapshots any more that are of no use without its own."""
    job = a_job(new_job, memory_every=1)
    running = replicated(job, until=8, grows=4)
    assert running.wait() == [0, 0], running.output()
    assert "Snapshots in memory end here" in running.outputs[1].read_text()
    assert held(job, 0)[-1].owner.step == 4
