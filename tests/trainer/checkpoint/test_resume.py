"""Whatever kills the ranks, training goes on from where it was: bit by bit at the same world size."""

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor
from trainmaster.wire import names
from trainmaster_trainer.checkpoint import load
from trainmaster_trainer.checkpoint.layout import saved_steps
from trainmaster_trainer.checkpoint.shard import ShardRecord, read_shard

from tests.trainer.finding import find_newest
from tests.trainer.ranks import PATIENCE, NewJob, Options

SLOW = {"seconds": 0.01, "dropout": 0.2}
LONG = {"steps": 60, "checkpoint_every": 7, "arguments": SLOW}


def test_killed_and_resumed_ends_in_the_same_bits(new_job: NewJob) -> None:
    undisturbed = new_job("undisturbed", **LONG).run(2)
    job = new_job("killed", **LONG)
    for attempt, step in ((1, 10), (2, 33)):
        running = job.but(arguments={**SLOW, "seconds": 0.05}).start(2, attempt)
        running.reach(step)
        while max(saved_steps(job.checkpoints()), default=0) < step // 7 * 7:
            time.sleep(0.005)  # it is saved beside the steps
        running.kill()
    job.run(2, attempt=3)
    assert job.losses() == undisturbed.losses()
    assert job.manifest(60)["model_sha256"] == undisturbed.manifest(60)["model_sha256"]
    assert {line["attempt"] for line in job.lines()} == {1, 2, 3}


def test_an_attempt_with_nothing_left_to_train_tells_of_the_last_checkpoint(new_job: NewJob) -> None:
    """Its agent need not read it from a storage that may be slow, and the pod that saved it may be gone."""
    job = new_job("again", steps=3).run(2)
    running = job.start(2, attempt=2)
    assert running.wait() == [0, 0], running.output()
    record = running.pages[0].read_checkpoint()
    assert record is not None
    assert (record.step, record.sha256) == (3, job.manifest(3)["model_sha256"])


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 4)])
def test_another_world_size_goes_on_with_the_same_losses(new_job: NewJob, before: int, after: int) -> None:
    task = {"task": "trainmaster_trainer.tasks.digits:Digits", "arguments": {"hidden": 16}, "global_batch_size": 25}
    undisturbed = new_job("undisturbed", **task).run(before)
    job = new_job("resized", **task).but(steps=4).run(before).but(steps=6).run(after, attempt=2)
    assert job.losses() == pytest.approx(undisturbed.losses(), rel=1e-5)
    assert job.manifest(6)["world_size"] == after


# Any two of algorithm, memory and task are together in one of these.
@pytest.mark.parametrize(
    ("algorithm", "memory", "task", "world"),
    [
        ("Native", "on", "Line", 4),
        ("Native", "off", "LineWithRunningMeans", 3),
        ("Ring", "on", "LineWithRunningMeans", 3),
        ("Ring", "off", "Line", 4),
        ("Hierarchical", "on", "Line", 4),
        ("Hierarchical", "off", "LineWithRunningMeans", 3),
        ("Driver", "on", "LineWithRunningMeans", 3),
        ("Driver", "off", "Line", 4),
    ],
)
def test_three_and_more_ranks_add_up_in_the_same_order_after_a_resume(
    new_job: NewJob, algorithm: str, memory: str, task: str, world: int
) -> None:
    plan: Options = {"task": f"small_tasks:{task}", "arguments": {"dropout": 0.2}, "checkpoint_every": 3}
    plan |= {"strategy_options": {"algorithm": algorithm}, "variables": {"TRAINMASTER_SHARED_MEMORY": memory}}
    whole = new_job("whole", **plan).but(steps=12).run(world)
    job = new_job("parts", **plan).but(steps=3).run(world).but(steps=12).run(world, attempt=2)
    assert job.losses() == whole.losses()
    assert job.manifest(12)["model_sha256"] == whole.manifest(12)["model_sha256"]


def test_sigterm_to_one_rank_saves_all_and_leaves_with_143(new_job: NewJob) -> None:
    undisturbed = new_job("undisturbed", **LONG).run(2)
    job = new_job("stopped", **LONG).but(checkpoint_every=1000)
    running = job.but(arguments={**SLOW, "seconds": 0.1}).start(2)  # whether a stop is asked is agreed twice a second
    running.reach(5)
    os.kill(running.pids[1], signal.SIGTERM)
    assert running.wait() == [143, 143], running.output()
    (saved,) = [int(path.name[5:]) for path in job.checkpoints().glob("step-*")]
    assert 5 <= saved < 60
    job.run(2, attempt=2)
    assert job.losses() == undisturbed.losses()
    assert next(line["step"] for line in job.lines() if line["attempt"] == 2) == saved + 1


def test_a_finished_job_started_again_only_evaluates(new_job: NewJob) -> None:
    job = new_job().run(2)
    before = job.manifest(6)
    job.run(2, attempt=2)
    assert job.manifest(6) == before
    assert len(job.losses()) == 6


def test_retention_keeps_the_newest(new_job: NewJob) -> None:
    job = new_job(steps=9, checkpoint_keep=2).run(2)
    assert sorted(path.name for path in job.checkpoints().glob("step-*")) == ["step-00000008", "step-00000009"]
    assert not list(job.checkpoints().glob(".*"))


def test_private_folders_survive_the_loss_of_one(new_job: NewJob) -> None:
    private = {**LONG, "checkpoint_shared": False}
    undisturbed = new_job("undisturbed", **private).run(4, ranks_per_pod=2)
    assert undisturbed.manifest(60, pod=0)["model_sha256"] == undisturbed.manifest(60, pod=1)["model_sha256"]
    job = new_job("killed", **private)
    running = job.start(4, ranks_per_pod=2)
    running.reach(20)
    running.kill()
    shutil.rmtree(job.checkpoints(0))
    job.run(4, attempt=2, ranks_per_pod=2)
    assert job.losses() == undisturbed.losses()  # of pod 0, which had lost the beginning of its file
    assert job.manifest(60, pod=0)["model_sha256"] == undisturbed.manifest(60)["model_sha256"]
    assert job.manifest(60, pod=1)["model_sha256"] == undisturbed.manifest(60)["model_sha256"]


def test_lines_of_before_a_private_checkpoint_are_not_read_again(new_job: NewJob) -> None:
    """They were on the disk before it was: a restart after weeks reads the last ones."""
    job = new_job("job", checkpoint_shared=False).run(2)
    lines = (job.checkpoints(pod=1) / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[0] = b"not looked at\n"
    (job.checkpoints(pod=1) / "metrics.jsonl").write_bytes(b"".join(lines))
    job.but(steps=8).run(2, attempt=2)
    assert (job.checkpoints(pod=1) / "metrics.jsonl").read_bytes().startswith(lines[0])


def test_another_jobs_checkpoint_can_be_the_beginning(new_job: NewJob) -> None:
    whole = new_job("whole").run(2)
    first = new_job("first").but(steps=4).run(2)
    for name, step in (("newest", None), ("named", 2)):
        job = new_job(name, resume_from=str(first.checkpoints()), resume_step=step).run(2)
        assert next(line["step"] for line in job.lines() if "loss" in line) == (step or 4) + 1
        assert job.manifest(6)["model_sha256"] == whole.manifest(6)["model_sha256"]


def test_another_job_may_prune_what_is_being_read(
    new_job: NewJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = new_job("first").run(1).checkpoints()
    folder = tmp_path / "others"
    shutil.copytree(saved / "step-00000004", folder / "step-00000004")
    expected = load.read(saved, 4).state.model_shapes()

    def pruned(path: Path, shard: ShardRecord) -> dict[str, Tensor]:
        if path.name == "step-00000004":  # the other job goes on meanwhile
            shutil.copytree(saved / "step-00000006", folder / "step-00000006")
            shutil.rmtree(path)
        return read_shard(path, shard)

    monkeypatch.setattr(load, "read_shard", pruned)
    loaded = find_newest(folder, expected)
    assert loaded is not None
    assert loaded.manifest.step == 6
    assert find_newest(tmp_path / "empty", {}) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resume_from": "/nowhere"}, "spec.checkpoint.resumeFrom: there is no good checkpoint in /nowhere"),
        ({"resume_from": "{first}", "resume_step": 3}, "spec.checkpoint.resumeFrom: step 3 in"),
        ({"resume_from": "{first}", "arguments": {"width": 2}}, "First difference: 0.bias is float32[8] in the"),
    ],
)
def test_a_beginning_that_cannot_be_is_a_configuration_error(new_job: NewJob, changes: Options, message: str) -> None:
    first = new_job("first").run(1)
    changes["resume_from"] = changes["resume_from"].format(first=first.checkpoints())
    running = new_job("second", **changes).start(2)
    assert running.wait() == [78, 78]
    assert message in running.output()


def test_another_model_in_the_own_folder_is_a_configuration_error_on_all_ranks(new_job: NewJob) -> None:
    job = new_job().run(2)
    running = job.but(arguments={"width": 2}, steps=8).start(2, attempt=2)
    assert running.wait() == [78, 78]
    assert "holds another model" in running.output()


def test_another_optimizer_is_a_configuration_error(new_job: NewJob) -> None:
    job = new_job().but(steps=2).run(1)
    running = job.but(task="small_tasks:LineWithAdam", steps=4).start(1, attempt=2)
    assert running.wait() == [78]
    assert "written by SGD" in running.output()


@pytest.mark.parametrize(("before", "first"), [("14", 8), ("20", 15), ("3", 1)])
def test_checkpoints_that_are_not_trusted_are_not_gone_on_from(new_job: NewJob, before: str, first: int) -> None:
    """With none that is older, training begins anew."""
    job = new_job("doubtful", **LONG).but(steps=20).run(2)
    replace(job.but(steps=25), variables={"TRAINMASTER_RESUME_BEFORE": before}).run(2, attempt=2)
    assert min(line["step"] for line in job.lines() if line["attempt"] == 2) == first


def test_a_dataset_of_another_length_is_a_configuration_error(new_job: NewJob) -> None:
    """Its order is another one: the next steps would take what others have taken."""
    job = new_job("job", steps=2, task="small_tasks:Counted", arguments={"samples": 100}).run(1)
    assert job.manifest(2)["cursor"]["dataset"] == 100
    running = job.but(steps=4, arguments={"samples": 90}).start(1, attempt=2)
    assert running.wait() == [78]
    assert "its dataset() has 90 samples now, and step 2 of this job was reached with 100" in running.output()
    job.but(steps=4).run(1, attempt=2)


def test_ranks_with_datasets_of_different_lengths_are_a_configuration_error(new_job: NewJob) -> None:
    """Each would have a permutation of its own: files still arrive in the folder that the task lists."""
    running = new_job(task="late_tasks:Arriving", arguments={"samples": 100, "for_each_rank": 3}).start(2)
    assert running.wait() == [78, 78]
    assert "its dataset() has 100 samples on rank 0 and 103 on rank 1" in running.output()


def test_another_job_is_found_by_its_name_beside_ours(new_job: NewJob) -> None:
    older = new_job("yesterday-20261120-080000", steps=4).run(1)
    newer = new_job("yesterday-20261120-090000", steps=2).run(2)
    for name in ("yesterday-evening-20261120-200000", "yesterday-2-20261120-200000"):
        new_job(name, steps=6).run(1)  # another job, whose name begins alike
    assert older.manifest(4)["step"] == 4
    today = new_job("today-20261121-080000", steps=6, resume_job="yesterday").run(1)
    assert "Resuming from step 2 " in (today.folder / "output-1-0").read_text()
    assert [line["step"] for line in today.lines() if "loss" in line] == [3, 4, 5, 6]
    assert newer.manifest(2)["step"] == 2


def test_on_a_claim_it_is_found_by_name_and_uid(tmp_path: Path, new_job: NewJob) -> None:
    yesterday = new_job("first", steps=2).run(1)
    shutil.copytree(yesterday.checkpoints(), tmp_path / "yesterday-0a1b2c3d")
    own = tmp_path / "today-99999999"
    today = replace(new_job("second", steps=4, resume_job="yesterday"), variables={names.ENV_CHECKPOINTS: str(own)})
    running = today.start(1)
    assert running.wait() == [0], running.output()
    assert "Resuming from step 2 " in running.output()


def test_a_job_that_saved_nothing_is_named(new_job: NewJob) -> None:
    running = new_job("today-20261121-080000", resume_job="never").start(2)
    assert running.wait() == [78, 78]
    assert "spec.checkpoint.resumeFrom.job: 'never' has no good checkpoint in" in running.output()


@pytest.mark.parametrize("memory", [False, True])
def test_a_branch_that_was_given_up_is_not_gone_on_from(new_job: NewJob, memory: bool) -> None:
    """Attempt 2 doubts step 20, goes on from 10 and dies before it is there: attempt 3 does not believe it either."""
    arguments = {"seconds": 0.03}
    plan = {"steps": 30, "checkpoint_every": 10, "arguments": arguments, "memory_every": 1 if memory else 0}
    job = replace(new_job(**plan), memory=memory)
    job.but(steps=20).run(1)
    slower = job.but(arguments={"seconds": 0.3})  # it is to be killed before step 20, on a busy machine too
    doubting = replace(slower, variables={names.ENV_RESUME_BEFORE: "20"}).start(1, attempt=2)
    doubting.reach(14)
    doubting.kill()
    reached = doubting.pages[0].read().step
    assert reached < 20, "too slow a test"
    job.run(1, attempt=3)
    first = min(line["step"] for line in job.lines() if line["attempt"] == 3)
    assert first == (reached + 1 if memory else 11)
    assert [job.manifest(step)["attempt"] for step in (10, 20, 30)] == [1, 3, 3]
    assert len(job.losses()) == 30


def test_a_doubtful_checkpoint_is_replaced_by_the_one_that_was_reached_anew(new_job: NewJob) -> None:
    job = new_job(checkpoint_every=10).but(steps=20).run(1)
    replace(job, variables={names.ENV_RESUME_BEFORE: "20"}).run(1, attempt=2)
    assert [job.manifest(step)["attempt"] for step in (10, 20)] == [1, 2]


@pytest.mark.parametrize(("change", "field"), [({"global_batch_size": 12}, "globalBatchSize"), ({"seed": 2}, "seed")])
def test_another_order_of_samples_is_a_configuration_error(new_job: NewJob, change: Options, field: str) -> None:
    """Some would be left out, or come twice."""
    job = new_job().but(steps=2).run(1)
    running = job.but(steps=4, **change).start(1, attempt=2)
    assert running.wait() == [78]
    assert f"spec.training.{field}: this job's checkpoint of step 2 was reached with" in running.output()
    new_job("fork", steps=4, resume_from=str(job.checkpoints()), **change).run(1)


def test_the_result_is_of_the_step_that_was_reached(new_job: NewJob) -> None:
    """Also where a job is told afterwards to be content with less."""
    job = new_job().but(steps=4).run(1)
    job.but(steps=2).run(1, attempt=2)
    assert job.result()["step"] == 4


def test_who_is_asked_to_stop_over_the_last_checkpoint_brings_it_home(new_job: NewJob) -> None:
    job = new_job(task="odd_tasks:WithBallast", checkpoint_every=1000)
    running = job.start(1)
    deadline = time.monotonic() + PATIENCE
    while not list(job.checkpoints().glob(".saving-*")):
        assert time.monotonic() < deadline, running.output()
        time.sleep(0.001)  # a folder has no bell
    os.kill(running.pids[0], signal.SIGTERM)
    assert running.wait() in ([0], [143])
    assert job.manifest(6)["step"] == 6
