"""Batches that data workers make ahead are those that the rank would make, and no data worker outlives its rank."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainmaster.core.failures import classes, signatures
from trainmaster.wire import names
from trainmaster_trainer.agent.evidence import read_error
from trainmaster_trainer.data import Batches, Share
from trainmaster_trainer.data_workers import Ahead

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import PATIENCE, Job, NewJob, Options, Running
from tests.trainer.small_tasks import Noisy

ODD: Options = {"task": "reading_data_tasks:WithOddSamples", "data_workers": 2, "steps": 40, "checkpoint_every": 100}
# Two steps in order, back (as after a loss), another share (a worker has gone), parts, and far ahead.
TAKEN = [(1, Share(0, 2)), (2, Share(0, 2)), (3, Share(0, 2)), (2, Share(0, 2)), (3, Share(0, 2)), (4, Share(0, 1))]
TAKEN += [(5, Share(1, 4, 2)), (6, Share(1, 4, 2)), (9, Share(1, 4, 2)), (9, Share(1, 2)), (12, Share(1, 2))]


@pytest.fixture
def batches() -> Iterator[Batches]:
    made = Batches(Noisy(), 8, steps=9, seed=3, device=torch.device("cpu"))
    yield made
    made.close()


@pytest.mark.parametrize("workers", [1, 4])
def test_whatever_is_taken_in_whatever_order_is_what_the_rank_itself_makes(batches: Batches, workers: int) -> None:
    here = [batches.take(*key) for key in TAKEN]
    batches.read_ahead(Ahead(workers), last=9)
    for expected, key in zip(here, TAKEN, strict=True):
        ahead = batches.take(*key)
        assert (ahead.step, ahead.size) == (expected.step, expected.size)
        assert torch.equal(ahead.inputs, expected.inputs)
        assert torch.equal(ahead.targets, expected.targets)


def named(*pids: int) -> list[str]:
    """What torch has in /dev/shm for these processes, or for this one."""
    return [path.name for pid in pids or (os.getpid(),) for path in Path("/dev/shm").glob(f"torch_{pid}_*")]  # noqa: S108


def test_batches_travel_in_memory_without_a_name(batches: Batches) -> None:
    before = {*named()}
    batches.read_ahead(Ahead(2), last=9)
    batch = batches.take(1, Share(0, 1))
    assert batch.inputs.is_shared()
    assert "memfd:" in Path("/proc/self/maps").read_text()
    assert {*named()} == before


def test_members_that_read_ahead_reach_the_same_losses_to_the_last_bit(new_crew: NewCrew) -> None:
    """Under ParameterServer, with a worker that is killed and comes back, at once or after some steps without it."""
    plan: Options = {"task": "drawing_tasks:Drawing", "steps": 12, "arguments": {"seconds": 0.01}}
    plan["strategy_options"] = {"update": "Sync"}
    expected: list[float] = []
    for number in (0, 1, 4):
        crew = new_crew(2, 1, name=f"readers-{number}", data_workers=number, **plan).start()
        if number:
            crew.reach(4)
            crew.kill(1)
            if number > 1:
                crew.away.add(1)
                crew.write_roster()
                crew.reach(8)
            crew.again(1)
        crew.finish()
        losses = [line["loss"] for line in crew.figures()]
        expected = expected or losses
        assert losses == expected


def living() -> Iterator[tuple[int, int, str]]:
    """All processes but those of which only a zombie is left, with parent and name."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has gone meanwhile
            pid, rest = path.read_text().split(" (", 1)
            name, fields = rest.rsplit(") ", 1)
            if fields[0] not in "ZX":
                yield int(pid), int(fields.split()[1]), name


def readers(of: list[int]) -> dict[int, str]:
    """The data workers of these ranks, with their names."""
    return {pid: name for pid, parent, name in living() if parent in of}


def alive(pids: Iterable[int]) -> set[int]:
    """Those of them that still run."""
    return {*pids} & {pid for pid, _, _ in living()}


def started(job: Job, world: int = 1) -> Running:
    """Ranks that train, whose data workers are there."""
    running = job.start(world)
    running.reach(3)
    return running


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_data_workers_end_with_their_rank_and_leave_nothing(new_job: NewJob, number: int) -> None:
    # A name that sockets have no room for, and steps that do not end before they are told to.
    job = new_job("j" * 80, **{**ODD, "steps": 4000}, arguments={"seconds": 0.02})
    running = started(job, world=2)
    found = readers(running.pids)
    assert len([*job.folder.glob("pymp-*")]) == 2  # where the agent deletes them, whatever ends the rank
    assert sorted(found.values()) == ["tm-data-0", "tm-data-0", "tm-data-1", "tm-data-1"]
    if number == signal.SIGKILL:
        for pid in running.pids:
            os.kill(pid, signal.SIGSTOP)  # else one may see the other's end before its own comes
    for pid in running.pids:
        os.kill(pid, number)
    assert set(running.wait()) == {-signal.SIGKILL if number == signal.SIGKILL else 143}, running.output()
    deadline = time.monotonic() + PATIENCE
    while alive(found):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not named(*found, *running.pids)


def ended(job: Job) -> tuple[str, str, str]:
    """How a rank ends that fails: class, type with message, and where."""
    path = job.folder / "error"
    running = replace(job, variables={names.ENV_ERROR_FILE: str(path)}).start(1)
    assert running.wait() != [0], running.output()
    error = read_error(path)
    assert error, running.output()
    return signatures.class_of(error), f"{error.type}: {error.message}", error.frame


def odd(new_job: NewJob, kind: str, readers: int = 2) -> Job:
    """A job that meets an odd sample once."""
    job = new_job(f"{kind}-{readers}", **{**ODD, "data_workers": readers})
    return job.but(arguments={"kind": kind, "marker": str(job.folder / "marker")})


@pytest.mark.parametrize("kind", ["SIGKILL", "SIGSEGV", "SIGBUS", "exit"])
def test_a_data_worker_that_dies_has_a_class_of_its_own(new_job: NewJob, kind: str) -> None:
    assert ended(odd(new_job, kind))[0] == classes.DATA_WORKER_DIED


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("KeyError", classes.PYTHON_ERROR),
        ("OwnError", classes.PYTHON_ERROR),
        ("MemoryError", classes.OUT_OF_MEMORY),
    ],
)
def test_an_error_in_a_data_worker_is_told_as_if_the_rank_had_made_it(new_job: NewJob, kind: str, failure: str) -> None:
    ahead, here = (ended(odd(new_job, kind, readers)) for readers in (1, 0))
    assert ahead == here
    assert ahead[0] == failure
    assert "reading_data_tasks.py" in ahead[2]


PADDED: Options = {"task": "reading_data_tasks:Padded", "steps": 3}


@pytest.mark.parametrize("readers", [0, 1])
def test_ragged_samples_are_refused_with_collate_as_their_cure(new_job: NewJob, readers: int) -> None:
    failure, message, _ = ended(new_job(**{**PADDED, "task": "reading_data_tasks:Ragged"}, data_workers=readers))
    assert failure == classes.CONFIGURATION
    assert message.startswith("ConfigurationError: spec.training.task: the inputs of sample")
    assert "collate" in message


def test_a_task_collates_as_it_likes(new_job: NewJob) -> None:
    losses = [new_job(f"j{readers}", **PADDED, data_workers=readers).run(2).losses() for readers in (0, 1)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        ("tensor", "what its collate() returns is one Tensor"),
        ("lambda", "cannot travel from a data worker to its rank: AttributeError: Can't pickle local object"),
        ("array", "the targets of a batch have NumPy arrays, and computing with them failed: "),
    ],
)
def test_what_cannot_be_a_batch_ends_the_job_at_once(new_job: NewJob, gives: str, said: str) -> None:
    """And lets nobody wait for ever."""
    failure, message, _ = ended(new_job(**PADDED, arguments={"gives": gives}, data_workers=1))
    assert failure == classes.CONFIGURATION
    assert said in message


def test_a_collate_that_leaves_samples_out_is_refused_unless_its_loss_says_of_how_many_it_is(new_job: NewJob) -> None:
    plan: Options = {"task": "reading_data_tasks:LeavingOut", "steps": 2, "data_workers": 0}
    running = new_job("mean", **plan, arguments={"pair": False}).start(2)
    assert running.wait_for(1) == 78
    running.kill()
    assert "collate() was given 5 samples and returned a batch of 4" in running.output()
    assert len(new_job("pair", **plan, arguments={"pair": True}).run(2).losses()) == 2
