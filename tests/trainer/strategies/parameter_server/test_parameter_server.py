"""ParameterServer with real processes: equal losses in lock step, exactly-once shares, deaths of anybody."""

import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from trainmaster.cli.audit import audit
from trainmaster.wire.messages import CheckpointRecord
from trainmaster_trainer.checkpoint.layout import saved_steps
from trainmaster_trainer.checkpoint.load import read

from tests.trainer.crew import Crew, NewCrew
from tests.trainer.ranks import NewJob, Options

STEPS = 10
DIGITS: Options = {"task": "trainmaster_trainer.tasks.digits:Digits", "arguments": {"hidden": 32}}
TEXT: Options = {
    "task": "trainmaster_trainer.tasks.text:Text",
    "arguments": {"layers": 1, "width": 16, "heads": 2, "context": 16, "bytes": 100_000},
}


@pytest.mark.parametrize("task", [DIGITS, TEXT], ids=["digits", "text"])
def test_synchronous_updates_give_the_losses_of_one_device(new_job: NewJob, new_crew: NewCrew, task: Options) -> None:
    plan = {**task, "steps": STEPS, "checkpoint_every": STEPS, "global_batch_size": 50}
    expected = new_job("one", strategy="OneDevice", **plan).run(1)
    for workers, servers in ((1, 1), (2, 1), (3, 2), (4, 3)):
        crew = new_crew(workers, servers, f"{workers}-{servers}", strategy_options={"update": "Sync"}, **plan)
        job = crew.start().finish()
        assert job.losses() == pytest.approx(expected.losses(), rel=1e-5), (workers, servers)
        assert job.result()["metrics"] == pytest.approx(expected.result()["metrics"], rel=1e-3)


@pytest.mark.parametrize(("workers", "servers"), [(1, 3), (2, 1), (3, 2)])
def test_asynchronous_updates_reach_the_accuracy_in_25600_samples(
    new_crew: NewCrew, workers: int, servers: int
) -> None:
    plan = {"task": DIGITS["task"], "arguments": {"hidden": 256}, "steps": 200, "global_batch_size": 128}
    # Without a bound, a gradient is as old as other work keeps its worker from the processor: no accuracy follows then.
    options = {"update": "Async", "maxStaleness": 1}
    job = new_crew(workers, servers, checkpoint_every=100, strategy_options=options, **plan).start().finish()
    assert job.result()["metrics"]["accuracy"] > 0.95
    assert len(job.losses()) == 200


def test_asynchronous_updates_learn_to_write(new_job: NewJob, new_crew: NewCrew) -> None:
    plan = {"task": TEXT["task"], "arguments": {**TEXT["arguments"], "width": 32}, "global_batch_size": 64}
    plan |= {"steps": 120, "checkpoint_every": 120}
    alone = new_job("one", strategy="OneDevice", **plan).run(1).result()["metrics"]["validation_loss"]
    job = new_crew(3, 2, "three", strategy_options={"update": "Async", "maxStaleness": 4}, **plan).start().finish()
    assert job.result()["metrics"]["validation_loss"] < alone + 0.1


SAMPLES = 64
COUNTING: Options = {"task": "small_tasks:Counting", "global_batch_size": 16, "steps": 60, "checkpoint_every": 20}


def counts(crew: Crew) -> list[list[float]]:
    """How often each server's part says that each sample was used."""
    job = crew.job
    tensors = read(job.checkpoints(), job.plan.steps).state.tensors
    return [tensor.tolist() for name, tensor in sorted(tensors.items()) if name.startswith("model/")]


def assert_every_sample_counted_once(crew: Crew) -> None:
    plan = crew.job.plan
    uses = plan.steps * plan.global_batch_size / SAMPLES
    assert counts(crew) == [[uses] * SAMPLES] * 3
    assert len(crew.job.losses()) == plan.steps


SLOW = {"arguments": {"seconds": 0.02}}


# Under Sync the first and the last server die below as well, where bits are compared.
@pytest.mark.parametrize(("update", "dying"), [("Async", 3), ("Async", 4), ("Async", 5), ("Sync", 4)])
def test_a_lost_server_comes_back_from_its_peer(new_crew: NewCrew, update: str, dying: int) -> None:
    crew = new_crew(3, 3, **COUNTING, **SLOW, strategy_options={"update": update}).start()
    crew.reach(25)
    crew.kill(dying)
    crew.again(dying)
    crew.finish()
    assert "Took the shard over from the neighbour's copy" in crew.output_file(dying).read_text()
    if update == "Async":
        assert_every_sample_counted_once(crew)
    assert {line["attempt"] for line in crew.figures()} == {1}


@pytest.mark.parametrize(("servers", "lost"), [(2, [2]), (2, [3]), (3, [3]), (3, [2, 4])])
def test_a_server_that_is_away_is_missed_and_not_forgotten(new_crew: NewCrew, servers: int, lost: list[int]) -> None:
    """The roster says so at once, and whoever starts meanwhile must still find the same parts of the model."""
    crew = new_crew(2, servers, **COUNTING, **SLOW).start()
    crew.reach(25)
    crew.lose(*lost)
    crew.kill(1)
    crew.again(1)
    for rank in lost:
        crew.again(rank)
        time.sleep(0.5)
    crew.finish()
    assert_every_sample_counted_once(crew)
    assert {line["attempt"] for line in crew.figures()} == {1}


@pytest.mark.parametrize("servers", [1, 2])
def test_servers_that_are_all_lost_come_back_from_the_checkpoint(new_crew: NewCrew, servers: int) -> None:
    crew = new_crew(2, servers, **COUNTING, **SLOW).start()
    crew.reach(25)
    crew.stands(20)
    for rank in range(2, 2 + servers):
        crew.kill(rank)
    newest = saved_steps(crew.job.checkpoints())[0]
    for rank in range(2, 2 + servers):
        crew.again(rank)
    crew.reach(newest + 5, rank=2)  # a server's page is a new one
    held = [Path(f"/proc/{crew.pids[rank]}/maps").read_text() for rank in range(2, 2 + servers)]
    crew.finish()
    assert f"Resuming from step {newest}" in crew.output()
    assert f"step-{newest:08d}" not in "".join(held), "it is as large as all the rest"
    assert_every_sample_counted_once(crew)


@pytest.mark.parametrize("dying", [2, 3], ids=["server 0", "server 1"])
def test_a_server_that_is_lost_before_it_has_a_copy_sets_all_back(new_crew: NewCrew, dying: int) -> None:
    crew = new_crew(2, 2, **COUNTING, **SLOW).start()
    crew.reach(3)  # neither the other server's copy nor a checkpoint is there yet
    crew.kill(dying)
    crew.again(dying)
    crew.finish()
    assert_every_sample_counted_once(crew)


def test_workers_come_and_go_and_every_sample_counts_once(new_crew: NewCrew) -> None:
    crew = new_crew(3, 2, **COUNTING, **SLOW).start()
    crew.reach(10)
    crew.kill(1)
    crew.reach(20)
    crew.again(1)
    crew.leave(2)
    crew.reach(40)
    crew.finish()
    assert_every_sample_counted_once(crew)


def test_a_worker_that_is_told_to_stop_leaves_at_once(new_crew: NewCrew) -> None:
    """It takes no ticket more, and the others train on."""
    crew = new_crew(2, 1, **{**COUNTING, "steps": 1_000_000}).start()
    crew.reach(10, rank=1)
    crew.stop(1)
    assert crew.wait(1) == 143
    crew.reach(crew.step(0) + 20)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_all_who_are_told_to_stop_save_first(new_crew: NewCrew, order: tuple[int, ...]) -> None:
    """Whoever hears of it first, the last checkpoint is that of the step at which they stop."""
    crew = new_crew(2, 2, **{**COUNTING, "steps": 1_000_000, "checkpoint_every": 1_000_000}).start()
    crew.reach(10)
    for rank in order:
        crew.stop(rank)
    assert [crew.wait(rank) for rank in order] == [143] * 4
    (folder,) = crew.job.checkpoints().glob("step-*")
    assert int(folder.name.removeprefix("step-")) >= 10


def test_servers_that_are_told_to_stop_do_not_wait_for_workers_that_are_dead(new_crew: NewCrew) -> None:
    """What these had begun nobody will end; the checkpoints before it stand."""
    crew = new_crew(2, 2, **{**COUNTING, "steps": 1_000_000, "checkpoint_keep": 1000}, **SLOW).start()
    crew.reach(25)
    crew.stands(20)
    for rank in (0, 1):
        crew.kill(rank)
    for rank in (2, 3):
        crew.stop(rank)
    assert [crew.wait(rank) for rank in (2, 3)] == [143, 143]
    assert (crew.job.checkpoints() / "step-00000020").exists()


def test_a_synchronous_step_waits_for_a_dead_workers_successor(new_job: NewJob, new_crew: NewCrew) -> None:
    plan = {"task": "small_tasks:Line", "steps": 30, "checkpoint_every": 30, "arguments": {"seconds": 0.01}}
    expected = new_job("one", strategy="OneDevice", **plan).run(1).losses()
    crew = new_crew(2, 2, "two", strategy_options={"update": "Sync"}, **plan).start()
    crew.reach(10)
    crew.kill(1)
    crew.again(1)
    assert crew.finish().losses() == pytest.approx(expected, rel=1e-5)


NOISY: Options = {  # random numbers, buffers and moments: all that a repeated share could get wrong
    "task": "small_tasks:LineWithRunningMeans",
    "arguments": {"dropout": 0.3, "seconds": 0.004},
    "global_batch_size": 12,
    "steps": 150,
    "checkpoint_every": 50,
    "strategy_options": {"update": "Sync"},
}


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_a_synchronous_run_ends_with_the_same_bits_whoever_died(new_crew: NewCrew, servers: int) -> None:
    calm = new_crew(3, servers, "calm", **NOISY).start()
    calm.finish()
    crew = new_crew(3, servers, "dying", **NOISY).start()
    first, last = 3, 2 + servers
    for number, dying in enumerate([[first], [1], [last], [0], [last, 2], [first], [2, 1], [last], [first, 0]]):
        crew.reach(10 + 12 * number)
        for rank in dying:
            crew.kill(rank)
        for rank in dying:
            crew.again(rank)
    crew.finish()
    expected, found = (read(job.checkpoints(), job.plan.steps).state.tensors for job in (calm.job, crew.job))
    assert sorted(expected) == sorted(found)
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


def test_workers_end_with_word_of_the_last_checkpoint(new_crew: NewCrew) -> None:
    """The job has succeeded with their ends: the agent of the server that has committed it may tell of it later."""
    crew = new_crew(2, 1, **DIGITS, steps=6, checkpoint_every=2).start()
    manifest = read(crew.finish().checkpoints(), 6).manifest
    told = CheckpointRecord(6, manifest.time, manifest.model_sha256, manifest.seconds)
    assert [crew.checkpoint(rank) for rank in range(3)] == [told] * 3


def test_samples_that_are_read_ahead_are_read_with_the_same_random_numbers(new_crew: NewCrew) -> None:
    plan: Options = {"task": "reading_tasks:WithReadSamples", "arguments": {"noise": 0.3}, "steps": 60}
    calm = new_crew(2, 1, "calm", strategy_options={"update": "Sync"}, **plan).start().finish()
    crew = new_crew(2, 1, "dying", strategy_options={"update": "Sync"}, **plan).start()
    for step in (10, 30):  # a worker that is there again, or the other one, reads what was read ahead by the dead one
        crew.reach(step)
        crew.kill(1)
        crew.again(1)
    assert crew.finish().losses() == calm.losses()


@pytest.mark.parametrize("servers", [1, 2])
def test_a_sample_that_cannot_be_read_is_no_server_that_is_away(new_crew: NewCrew, servers: int) -> None:
    plan: Options = {"task": "reading_tasks:WithReadSamples", "arguments": {"lost": 35}, "global_batch_size": 4}
    crew = new_crew(1, servers, strategy_options={"update": "Sync"}, **plan).start()
    assert crew.wait(0) == 1
    assert re.search(r"FileNotFoundError.*sample-3[56]\.npy", crew.output_file(0).read_text())


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_staleness_is_never_above_its_bound_and_gets_there(new_crew: NewCrew, bound: int) -> None:
    plan = {"task": "small_tasks:Paced", "arguments": {"paces": [0.0, 0.0, 0.16]}, "global_batch_size": 12}
    options = {"update": "Async", "maxStaleness": bound}
    crew = new_crew(3, 2, strategy_options=options, steps=15, checkpoint_every=15, **plan)
    crew.start_and_wait(0, 1, 2).start(3, 4).finish()
    assert max(line["staleness"] for line in crew.figures()) == bound


def test_without_a_bound_staleness_grows(new_crew: NewCrew) -> None:
    plan = {"task": "small_tasks:Paced", "arguments": {"paces": [0.0, 0.0, 0.8]}, "global_batch_size": 12}
    crew = new_crew(3, 1, steps=60, checkpoint_every=60, **plan)
    crew.start_and_wait(0, 1, 2).start(3).finish()
    assert max(line["staleness"] for line in crew.figures()) > 4


def test_backup_workers_are_not_waited_for(new_crew: NewCrew, capsys: pytest.CaptureFixture[str]) -> None:
    plan = {"task": "small_tasks:Paced", "arguments": {"paces": [0.0, 0.0, 20.0]}, "global_batch_size": 12}
    crew = new_crew(3, 2, steps=10, strategy_options={"update": "Sync", "backupWorkers": 1}, **plan).start()
    assert crew.wait(0) == 0, crew.output()
    assert crew.wait(1) == 0, crew.output()
    assert len(crew.job.losses()) == 10
    dropped = sum(line.get("dropped_samples", 0) for line in crew.job.lines())
    assert dropped == 10 * 4, "the share of one of three, at each step"
    assert audit(str(crew.job.checkpoints())) == 0
    assert "no sample repeated. 40 of 120 were not trained on" in capsys.readouterr().out


def test_any_strategy_goes_on_from_any_others_checkpoint(new_job: NewJob, new_crew: NewCrew) -> None:
    plan = {**DIGITS, "global_batch_size": 50, "checkpoint_every": 4}
    expected = new_job("one", strategy="OneDevice", steps=12, **plan).run(1)
    crew = new_crew(2, 2, "mixed", strategy_options={"update": "Sync"}, steps=4, **plan)
    job = crew.start().finish()
    job.but(strategy="AllReduce", strategy_options={}, steps=8).run(2, attempt=2)
    last = new_crew(3, 3, attempt=3, job=job.but(steps=12))
    assert last.start().finish().losses() == pytest.approx(expected.losses(), rel=1e-4)


@pytest.mark.parametrize("servers", [1, 2])
def test_buffers_that_are_not_saved_or_have_two_names_are_no_obstacle(
    new_job: NewJob, new_crew: NewCrew, servers: int
) -> None:
    plan: Options = {"task": "odd_tasks:WithHiddenBuffers", "arguments": {"seconds": 0.02}, "checkpoint_every": 20}
    crew = new_crew(2, servers, steps=40, strategy_options={"update": "Sync"}, **plan).start()
    crew.reach(25)
    crew.stands(20)
    for rank in range(2, 2 + servers):
        crew.kill(rank)
    newest = saved_steps(crew.job.checkpoints())[0]
    for rank in range(2, 2 + servers):
        crew.again(rank)
    job = crew.finish()
    assert f"Resuming from step {newest}" in crew.output()
    alone = job.but(strategy="OneDevice", strategy_options={}, steps=60).run(1, attempt=3)
    found = read(alone.checkpoints(), 40).state.tensors
    assert model_names(found) == model_names(read(alone.checkpoints(), 60).state.tensors)
    assert torch.equal(found["model/again.running_var"], found["model/first.running_var"])
    new_crew(2, servers, attempt=4, job=job.but(steps=62)).start().finish()


def model_names(tensors: Mapping[str, torch.Tensor]) -> set[str]:
    return {name for name in tensors if name.startswith("model/")}


ODD: dict[str, Options] = {
    "two groups by position": {"task": "odd_tasks:WithGroups", "arguments": {"sizes": [2]}},
    "each a group of its own": {"task": "odd_tasks:WithGroups", "arguments": {"sizes": [1, 1, 1]}},
    "one that is not trained": {"task": "odd_tasks:WithFrozenWeight"},
    "whole numbers": {"task": "odd_tasks:WithWholeNumbers"},
    "a buffer that is replaced": {"task": "odd_tasks:WithReplacedBuffer"},
}


@pytest.mark.parametrize("task", ODD.values(), ids=ODD)
def test_odd_tasks_train_as_on_one_device_whatever_a_server_has_of_them(
    new_job: NewJob, new_crew: NewCrew, task: Options
) -> None:
    plan = {**task, "checkpoint_every": 5}
    expected = new_job("one", strategy="OneDevice", steps=10, **plan).run(1).losses()
    crew = new_crew(2, 2, "two", strategy_options={"update": "Sync"}, steps=5, **plan)
    job = crew.start().finish()
    assert job.losses() == pytest.approx(expected[:5], rel=1e-5)
    later = new_crew(2, 1, attempt=2, job=job.but(steps=10)).start().finish()
    assert later.losses() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("servers", [1, 2])
def test_an_optimizers_own_counter_outlives_its_servers(new_job: NewJob, new_crew: NewCrew, servers: int) -> None:
    plan: Options = {"task": "odd_tasks:WithCounter", "global_batch_size": 10}
    alone = new_job("alone", strategy="OneDevice", **plan).but(steps=9).run(1)
    crew = new_crew(2, servers, steps=4, strategy_options={"update": "Sync"}, **plan).start()
    job = crew.finish()
    job = new_crew(2, servers, attempt=2, job=job.but(steps=9)).start().finish()
    assert job.losses() == pytest.approx(alone.losses(), rel=1e-4)
    assert job.manifest(9)["scalars"]["optimizer"]["own"] == {"counter": {"steps": 9}}
