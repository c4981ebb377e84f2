"""The memory tier: whatever kills ranks, no completed step is lost, and the end is the same bit by bit."""

import itertools
import json
import os
import random
import re
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainmaster.wire import names
from trainmaster_trainer.checkpoint.layout import saved_steps
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.memory import slots_in
from trainmaster_trainer.checkpoint.parts import cut
from trainmaster_trainer.checkpoint.recall import choose
from trainmaster_trainer.checkpoint.slot import Owner, SlotError, SnapshotSlot, look

from tests.trainer.ranks import Job, NewJob

RARE = {"checkpoint_every": 1000, "memory_every": 1}
SLOW = {"seconds": 0.005, "dropout": 0.2}


def remembering(job: Job) -> Job:
    """A job whose pods have a folder in memory each."""
    return replace(job, memory=True)


def first_step(job: Job, attempt: int) -> int:
    return next(int(line["step"]) for line in job.lines() if line["attempt"] == attempt)


@pytest.mark.parametrize("task", ["Line", "LineWithAdam", "LineWithRunningMeans"])
def test_a_killed_rank_costs_no_completed_step(new_job: NewJob, task: str) -> None:
    plan = {"steps": 40, "arguments": SLOW, "task": f"small_tasks:{task}"}
    undisturbed = new_job("undisturbed", **plan).run(2)
    job = remembering(new_job("killed", **plan, **RARE))
    done = 0
    for attempt, step in ((1, 7), (2, 8), (3, 23)):
        running = job.start(2, attempt)
        running.reach(step)
        os.kill(running.pids[attempt % 2], signal.SIGKILL)
        running.kill()
        done = min(page.read().step for page in running.pages)
        resumed = job.start(2, attempt * 10)
        resumed.reach(done)
        told = {page.read().resumed_step for page in resumed.pages}
        resumed.kill()
        assert told <= {done, done + 1}, resumed.output()
        assert "kept in memory" in resumed.output()
    job.run(2, attempt=100)
    assert job.losses() == pytest.approx(undisturbed.losses(), rel=0, abs=0)
    assert job.manifest(40)["model_sha256"] == undisturbed.manifest(40)["model_sha256"]


def test_a_replaced_pod_gets_the_state_from_a_live_one(new_job: NewJob) -> None:
    plan = {"steps": 40, "arguments": {"seconds": 0.015}, "checkpoint_shared": False}
    undisturbed = new_job("undisturbed", **plan).run(2, ranks_per_pod=1)
    job = remembering(new_job("lost", **plan, **RARE))
    running = job.start(2, ranks_per_pod=1)
    running.reach(20)
    running.kill()
    shutil.rmtree(job.folder / "memory-0")
    shutil.rmtree(job.checkpoints(0))
    running = job.start(2, attempt=2, ranks_per_pod=1)
    assert running.wait() == [0, 0], running.output()
    assert min(page.read().resumed_step for page in running.pages) >= 20
    assert job.manifest(40)["model_sha256"] == undisturbed.manifest(40)["model_sha256"]
    assert [line["step"] for line in job.lines() if "loss" in line] == list(range(1, 41))


def test_lines_that_somebody_has_deleted_are_not_made_up(new_job: NewJob) -> None:
    """Those of a training of weeks are millions: a restart that made them anew would take longer than anybody waits."""
    plan = {"steps": 30, "arguments": {"seconds": 0.005}, "checkpoint_every": 10, "memory_every": 1}
    job = remembering(new_job("deleted", **plan))
    running = job.start(2)
    running.reach(15)
    running.kill()
    (job.checkpoints() / "metrics.jsonl").unlink()
    # On a busy machine it may have gone on, and saved again, before the kill; or have saved nothing yet.
    saved = max((int(path.parent.name[5:13]) for path in job.checkpoints().glob("step-*/manifest.json")), default=0)
    job.run(2, attempt=2)
    assert [line["step"] for line in job.lines() if "loss" in line] == list(range(saved + 1, 31))


def test_a_group_of_another_size_goes_on_from_memory(new_job: NewJob) -> None:
    plan = {"steps": 30, "arguments": {"seconds": 0.015}}
    undisturbed = new_job("undisturbed", **plan).run(2)
    job = remembering(new_job("resized", **plan, **RARE))
    running = job.but(arguments={"seconds": 0.1}).start(2, ranks_per_pod=2)
    running.reach(12)
    running.kill()
    job.run(3, attempt=2, ranks_per_pod=3)
    assert job.losses() == pytest.approx(undisturbed.losses(), rel=1e-5)
    assert first_step(job, 2) >= 12


def test_ranks_that_run_apart_between_meetings_go_on_from_the_last_one(new_job: NewJob) -> None:
    """Rank 0 waits at the next meeting long before rank 1 is there."""
    plan = {"strategy": "LocalSGD", "task": "small_tasks:Uneven", "steps": 40, "arguments": {"seconds": 0.05}}
    undisturbed = new_job("undisturbed", **plan).run(2)
    job = remembering(new_job("killed", **plan, **RARE))
    running = job.but(arguments={"seconds": 0.2}).start(2)
    running.reach(9)
    running.kill()
    job.run(2, attempt=2)
    assert first_step(job, 2) == 9
    assert job.losses() == undisturbed.losses()
    assert job.manifest(40)["model_sha256"] == undisturbed.manifest(40)["model_sha256"]


def test_nothing_of_another_job_or_model_is_taken(new_job: NewJob) -> None:
    job = remembering(new_job("first", steps=30, arguments={"seconds": 0.015}, **RARE))
    running = job.start(1)
    running.reach(10)
    running.kill()
    stranger = replace(new_job("stranger", steps=4, **RARE), variables={names.ENV_JOB_UID: "other"})
    for one in (stranger, new_job("other", steps=4, arguments={"width": 2}, **RARE)):
        other = remembering(one)
        other.folder.mkdir()
        shutil.copytree(job.folder / "memory-0", other.folder / "memory-0", dirs_exist_ok=True)
        other.run(1, attempt=2)
        assert [line["step"] for line in other.lines() if "loss" in line] == [1, 2, 3, 4]


def test_a_dataset_of_another_length_is_a_configuration_error(new_job: NewJob) -> None:
    plan = {"steps": 40, "task": "late_tasks:Arriving", **RARE}
    job = remembering(new_job(arguments={"samples": 100, "seconds": 0.1}, **plan))
    running = job.start(2)
    running.reach(10)
    running.kill()
    later = job.but(arguments={"samples": 103}).start(2, attempt=2)
    assert later.wait() == [78, 78]
    told = re.search(
        r"its dataset\(\) has 103 samples now, and step (\d+) of this job was reached with 100", later.output()
    )
    assert told, later.output()
    assert 10 <= int(told[1]) < 40


def test_a_branch_that_was_given_up_is_never_taken(new_job: NewJob) -> None:
    """Attempt 1 reached step 12 or more, attempt 2 went on from step 4 without its memory: 12 never happened."""
    plan = {"steps": 30, "arguments": {"seconds": 0.015}, "checkpoint_every": 4, "checkpoint_keep": 9}
    job = remembering(new_job(**plan, memory_every=1))
    running = job.start(1)
    running.reach(14)
    running.kill()
    (job.folder / "memory-0").rename(job.folder / "away")
    for step in (one for one in saved_steps(job.checkpoints()) if one > 4):  # it may have gone on before the kill
        shutil.rmtree(job.checkpoints() / f"step-{step:08d}")
    running = job.but(memory_every=0).start(1, attempt=2)
    running.reach(5)
    running.kill()
    shutil.rmtree(job.folder / "memory-0")
    (job.folder / "away").rename(job.folder / "memory-0")
    running = job.start(1, attempt=3)
    assert running.wait() == [0], running.output()
    assert "kept in memory" not in running.output()
    job.losses()


def test_too_little_memory_is_said_once_and_training_goes_on(new_job: NewJob) -> None:
    job = remembering(new_job(steps=4, **RARE))
    job = replace(job, variables={"TINY_MEMORY": "1"})
    running = job.start(2)
    assert running.wait() == [0, 0]
    assert running.output().count("The memory tier is off") == 2  # each rank has a log of its own
    assert "MiB of memory are free" in running.output()


def test_a_rank_that_looks_late_does_not_count_its_neighbours_slots_twice(new_job: NewJob) -> None:
    """There is room for those of both, but not for those of both beside those of one."""
    job = replace(remembering(new_job(steps=4, **RARE)), variables={"LITTLE_MEMORY": "400000"}).run(2, ranks_per_pod=2)
    slots = list((job.folder / "memory-0").iterdir())
    assert len(slots) == 4
    assert 400_000 - sum(path.stat().st_size for path in slots) < sum(path.stat().st_size for path in slots) / 2, "so"


def test_zero_turns_it_off(new_job: NewJob) -> None:
    job = remembering(new_job(steps=4, memory_every=0)).run(1)
    assert list((job.folder / "memory-0").iterdir()) == []


# --- the parts ---


def owner(attempt: int = 1) -> Owner:
    return Owner("uid", attempt, 0, 1, replicated=True)


def test_a_kill_in_mid_write_never_yields_a_torn_snapshot(tmp_path: Path) -> None:
    """A child is killed at random moments of its writing; what can be read is of one step, whole."""
    chance = random.Random(1)  # noqa: S311 (no secret)
    unfinished = 0
    for number in range(60):
        paths = [tmp_path / f"{number}-{slot}" for slot in range(2)]
        child = os.fork()
        if child == 0:
            tensors = {name: torch.zeros(50_000) for name in "abc"}
            slots = [SnapshotSlot(path, owner(), tensors, 100) for path in paths]
            for step in itertools.count(1):
                for tensor in tensors.values():
                    tensor.fill_(step)
                slots[step % 2].write(step, tensors, json.dumps({"step": step}).encode())
        time.sleep(chance.uniform(0.005, 0.012))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for path in paths:
            try:
                snapshot = look(path)
            except SlotError:
                unfinished += 1
                continue
            loaded = snapshot.load()
            values = {float(value) for tensor in loaded.tensors.values() for value in tensor[::999]}
            assert values == {snapshot.owner.step}
            assert loaded.scalars == {"step": snapshot.owner.step}
    assert unfinished > 5, "the kills must have met writes"


def test_a_slot_takes_over_a_dead_process_file_at_its_first_write_only(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(500)}
    old = tmp_path / "attempt-9"
    child = os.fork()
    if child == 0:
        SnapshotSlot(old, owner(9), tensors, 100).write(3, tensors, b"{}")
        os._exit(0)
    os.waitpid(child, 0)
    before = old.stat().st_ino
    heir = SnapshotSlot(tmp_path / "attempt-10", owner(10), tensors, 100, heir_to=old)
    assert look(old).owner.step == 3
    heir.write(4, {"a": torch.full((500,), 2.0)}, b"{}")
    snapshot = look(heir.path)
    assert (snapshot.owner.step, snapshot.owner.attempt, heir.path.stat().st_ino) == (4, 10, before)
    assert torch.equal(snapshot.load().tensors["a"], torch.full((500,), 2.0))
    assert not old.exists()


def test_what_a_late_process_can_still_write_to_is_not_taken_over(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(5)}
    late = SnapshotSlot(tmp_path / "attempt-1", owner(1), tensors, 100)
    late.write(1, tensors, b"{}")
    heir = SnapshotSlot(tmp_path / "attempt-2", owner(2), tensors, 100, heir_to=late.path)
    heir.write(2, tensors, b"{}")
    late.write(7, tensors, b"{}")
    assert [(look(path).owner.step, look(path).owner.attempt) for path in (late.path, heir.path)] == [(7, 1), (2, 2)]


@pytest.mark.parametrize("harm", ["short", "layout", "scalars", "magic", "link"])
def test_a_damaged_slot_is_no_snapshot(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "slot"
    SnapshotSlot(path, owner(), {"a": torch.ones(3)}, 100).write(1, {"a": torch.ones(3)}, b"{}")
    assert look(path).owner.step == 1
    data = bytearray(path.read_bytes())
    places = {"layout": 4100, "magic": 0, "scalars": data.index(b"{}", 4096)}
    if harm == "short":
        path.write_bytes(data[:3000])
    elif harm == "link":
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    else:
        data[places[harm]] ^= 1
        path.write_bytes(data)
    with pytest.raises(SlotError):
        look(path)


def seen(step: int, attempt: int, rank: int, world_size: int, replicated: bool, *part: int, carries: int = -1) -> Owner:
    """What a rank tells of a snapshot. `part`: which one it is, and of how many, if there are several."""
    first, parts = part or (0, 1)
    return Owner("uid", attempt, rank, world_size, replicated, first, parts, carries=carries, step=step)


def half(step: int, rank: int, world_size: int = 2) -> Owner:
    """What the first or second rank of a pod of two has kept."""
    return seen(step, 1, rank, world_size, True, rank, 2)


@pytest.mark.parametrize(
    ("held", "chosen"),
    [
        ([[], []], None),
        ([[seen(5, 1, 0, 2, True)], []], (5, 1)),
        ([[seen(5, 1, 0, 2, False)], []], None),
        ([[seen(5, 1, 0, 2, False)], [seen(5, 1, 1, 2, False)]], (5, 1)),
        (
            [[seen(6, 1, 0, 2, False), seen(5, 1, 0, 2, False)], [seen(5, 1, 1, 2, False)]],
            (5, 1),
        ),
        (
            [[seen(5, 1, 1, 2, False)], [seen(5, 1, 0, 2, False)]],
            (5, 1),
        ),  # each keeps a copy of the other's
        (
            [
                [seen(6, 1, 0, 3, False), seen(5, 1, 0, 3, False), seen(5, 1, 2, 3, False)],
                [seen(5, 1, 1, 3, False)],
                [],
            ],
            (5, 1),
        ),
        ([[seen(6, 1, 0, 2, False, carries=1), seen(5, 1, 0, 2, False, carries=1)], []], (6, 1)),
        ([[seen(6, 1, 0, 3, False, carries=2)], [], []], None),
        ([[seen(6, 1, 0, 2, False, carries=1)], [seen(5, 1, 1, 2, False, carries=0)]], (6, 1)),
        ([[seen(5, 1, 0, 3, False)], [seen(5, 1, 1, 3, False)]], None),
        ([[seen(6, 1, 0, 2, True), seen(5, 1, 0, 2, True)], [seen(5, 1, 1, 2, True)]], (5, 1)),
        (
            [
                [seen(9, 1, 0, 2, True), seen(8, 1, 0, 2, True), seen(2, 1, 0, 2, True)],
                [seen(2, 1, 1, 2, True)],
            ],
            (9, 1),
        ),
        ([[seen(5, 2, 0, 1, True), seen(5, 3, 0, 1, True), seen(4, 4, 0, 1, True)]], (5, 3)),
        # Two ranks in one pod, with half of the state each.
        ([[half(6, 0), half(5, 0), half(5, 1), half(4, 1)]] * 2, (5, 1)),
        ([[half(6, 0), half(5, 0), half(4, 1)]] * 2, None),
        # Of a pod with two ranks and one with one, the first has been replaced: all is in the other.
        ([[], [], [seen(5, 1, 2, 3, True)]], (5, 1)),
        ([[half(5, 0, 3), half(5, 1, 3)], [half(5, 0, 3), half(5, 1, 3)], []], (5, 1)),
        ([[half(5, 0, 3)], [half(5, 0, 3)], []], None),
    ],
)
def test_what_the_group_can_restore(held: list[list[Owner]], chosen: tuple[int, int] | None) -> None:
    assert choose(held) == chosen


def test_the_lineage_knows_what_was_given_up() -> None:
    lineage = Lineage().with_attempt(1, 0).with_attempt(2, 40)
    assert lineage.holds(1, 40)
    assert not lineage.holds(1, 41)
    assert lineage.holds(2, 45)
    later = lineage.with_attempt(3, 44).with_attempt(4, 30)
    assert not later.holds(2, 40)
    assert later.holds(1, 30)
    assert later.resumed == {1: 0, 4: 30}


def test_ranks_of_one_replica_keep_one_state_among_them(new_job: NewJob) -> None:
    """Two ranks in a pod have half of it each; in pods of their own, all of it."""
    plan = {"steps": 4, "arguments": {"width": 4096}, "task": "small_tasks:LineWithAdam"}
    sizes = {}
    for ranks_per_pod in (1, 2):
        job = remembering(new_job(f"pods-of-{ranks_per_pod}", **plan, **RARE))
        job.run(2, ranks_per_pod=ranks_per_pod)
        sizes[ranks_per_pod] = [look(path) for path in (job.folder / "memory-0").iterdir()]
    (alone, *_), (half, *_) = sizes[1], sizes[2]
    assert (alone.owner.parts, half.owner.parts) == (1, 2)
    assert alone.load().model_shapes() == half.load().model_shapes()
    whole, part = alone.load().tensors, half.load().tensors
    weight = next(name for name in whole if name.startswith("model/") and name.endswith("weight"))
    assert part[weight].numel() * 2 == whole[weight].numel()


@pytest.mark.parametrize("shape", [(), (3,), (5000,), (2, 700), (7, 300), (1, 4000), (40, 41, 3)])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_the_parts_of_a_tensor_are_the_whole_of_it(shape: tuple[int, ...], parts: int) -> None:
    whole = torch.randn(shape)
    cuts = [cut({"a": whole}, part, parts) for part in range(parts)]
    how = cuts[0][1].get("a")
    assert torch.equal(torch.cat([views["a"] for views, _ in cuts], how.dimension) if how else cuts[0][0]["a"], whole)
    if how:
        assert sum(views["a"].numel() for views, _ in cuts) == whole.numel()
        assert {one["a"].whole(tuple(views["a"].shape)) for views, one in cuts} == {shape}


def test_a_folder_that_somebody_has_deleted_has_no_snapshots(tmp_path: Path) -> None:
    assert slots_in(tmp_path / "gone") == []
