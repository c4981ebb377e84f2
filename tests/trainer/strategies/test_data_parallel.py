"""What is particular to Mirrored, CentralStorage and LocalSGD, and checkpoints that go from one to another."""

import os
import re
import signal
from dataclasses import replace

import pytest
import torch
from trainmaster_trainer.checkpoint.load import read

from tests.trainer.ranks import NewJob, Options

DIGITS: Options = {
    "task": "trainmaster_trainer.tasks.digits:Digits",
    "arguments": {"hidden": 16},
    "global_batch_size": 25,
}
NO_MEMORY = {"TRAINMASTER_SHARED_MEMORY": "off"}


@pytest.mark.parametrize("reduction", ["Native", "HierarchicalCopy", "OneDevice"])
def test_mirrored_variables_are_equal_on_all_devices_after_every_step(new_job: NewJob, reduction: str) -> None:
    answers = new_job().call(
        3, "steps:variables", ranks_per_pod=3, strategy="Mirrored", options={"reduction": reduction}
    )
    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) == 5


def test_central_storage_has_one_copy_of_parameters_and_one_optimizer(new_job: NewJob) -> None:
    first, *others = new_job().call(3, "steps:storage", ranks_per_pod=3)
    assert len(first["files"]) == 1
    assert first["files"] != ["0"]  # a private mapping has no file
    assert all(other["files"] == first["files"] for other in others)
    assert first["optimizer"] == 4
    assert [other["optimizer"] for other in others] == [0, 0]


@pytest.mark.parametrize("strategy", ["Mirrored", "CentralStorage"])
def test_several_workers_are_refused(new_job: NewJob, strategy: str) -> None:
    running = new_job(strategy=strategy).start(2)
    assert set(running.wait()) <= {78, 1}  # the first one takes the store along
    assert f"spec.workers.replicas: {strategy} trains on the devices of one worker" in running.output()


@pytest.mark.parametrize("strategy", ["Mirrored", "CentralStorage"])
@pytest.mark.parametrize("task", ["Line", "LineWithRunningMeans", "LineWithAdam"])
def test_resumed_is_undisturbed_bit_by_bit(new_job: NewJob, strategy: str, task: str) -> None:
    plan: Options = {"strategy": strategy, "task": f"small_tasks:{task}", "arguments": {"dropout": 0.2}}
    whole = new_job("whole", **plan).but(steps=9).run(3, ranks_per_pod=3)
    job = new_job("parts", **plan).but(steps=4).run(3, ranks_per_pod=3)
    job = job.but(steps=9).run(3, attempt=2, ranks_per_pod=3)
    assert job.losses() == whole.losses()
    assert job.manifest(9)["model_sha256"] == whole.manifest(9)["model_sha256"]


def test_one_strategy_reads_the_checkpoint_of_another(new_job: NewJob) -> None:
    undisturbed = new_job("undisturbed", strategy="OneDevice", **DIGITS).but(steps=10).run(1)
    job = new_job("handed-on", strategy="AllReduce", **DIGITS).but(steps=2).run(2)
    job.but(strategy="CentralStorage", steps=4).run(3, attempt=2, ranks_per_pod=3)
    job.but(strategy="OneDevice", steps=6).run(1, attempt=3)
    job.but(strategy="Mirrored", steps=8).run(2, attempt=4, ranks_per_pod=2)
    job.but(strategy="AllReduce", strategy_options={"algorithm": "Ring"}, steps=10).run(3, attempt=5)
    assert job.losses() == pytest.approx(undisturbed.losses(), rel=1e-5)


# --- LocalSGD ---


@pytest.mark.parametrize("variables", [{}, NO_MEMORY], ids=["memory", "network"])
def test_local_sgd_that_meets_at_every_step_is_sgd(new_job: NewJob, variables: dict[str, str]) -> None:
    plain: Options = {"task": "small_tasks:LineWithPlainSGD", "steps": 8}
    expected = new_job("one", strategy="OneDevice", **plain).run(1).losses()
    for world in (1, 2, 3, 4):
        options = {"every": 1, "outer": "Average"}
        job = new_job(f"w{world}", strategy="LocalSGD", strategy_options=options, variables=variables, **plain)
        assert job.run(world).losses() == pytest.approx(expected, rel=1e-5), world


def test_local_sgd_of_one_rank_is_plain_training_to_the_last_bit(new_job: NewJob) -> None:
    plan: Options = {"task": "small_tasks:LineWithAdam", "arguments": {"dropout": 0.2}, "steps": 8}
    alone = new_job("alone", strategy="AllReduce", **plan).run(1)
    job = new_job("local", strategy="LocalSGD", strategy_options={"every": 3, "outer": "Average"}, **plan).run(1)
    assert job.losses() == alone.losses()
    assert job.manifest(8)["model_sha256"] == alone.manifest(8)["model_sha256"]


@pytest.mark.parametrize("every", [2, 4])
def test_local_sgd_moves_one_hth_of_the_bytes(new_job: NewJob, every: int) -> None:
    each_step = new_job("each").call(2, "steps:traffic", strategy="AllReduce", options={}, steps=8)
    options = {"every": every, "outer": "Average"}
    sometimes = new_job("sometimes").call(2, "steps:traffic", strategy="LocalSGD", options=options, steps=8)
    for often, seldom in zip(each_step, sometimes, strict=True):
        assert seldom == {name: count // every for name, count in often.items()}
        assert seldom["sent"] > 0


@pytest.mark.parametrize("outer", ["Average", "Nesterov"])
@pytest.mark.parametrize("stop", [4, 5])
def test_local_sgd_goes_on_in_the_middle_of_a_round_bit_by_bit(new_job: NewJob, outer: str, stop: int) -> None:
    plan: Options = {"strategy": "LocalSGD", "strategy_options": {"every": 4, "outer": outer}}
    plan |= {"task": "small_tasks:LineWithAdam", "arguments": {"dropout": 0.2}, "checkpoint_every": 100}
    whole = new_job("whole", **plan).but(steps=12).run(3)
    job = new_job("parts", **plan).but(steps=stop).run(3).but(steps=12).run(3, attempt=2)
    assert job.losses()[stop:] == whole.losses()[stop:]
    assert job.manifest(12)["model_sha256"] == whole.manifest(12)["model_sha256"]


def test_without_the_others_own_local_sgd_goes_on_from_the_mean_on_all_ranks(new_job: NewJob) -> None:
    """Each worker's folder has its own rank's alone, and all ranks read the first one's."""
    plan: Options = {"strategy": "LocalSGD", "strategy_options": {"every": 4}, "checkpoint_shared": False}
    job = new_job(task="small_tasks:Marked", steps=5, **plan)
    for attempt in (1, 2):
        assert job.run(2, attempt).result()["metrics"] == {"mark": 1.5}


def test_local_sgd_is_read_by_others_and_reads_theirs(new_job: NewJob) -> None:
    local: Options = {"strategy": "LocalSGD", "strategy_options": {"every": 3, "outer": "Nesterov"}}
    job = new_job("handed-on", strategy="OneDevice", **DIGITS).but(steps=20).run(1)
    job.but(**local, steps=40).run(2, attempt=2)
    job.but(**local, steps=50).run(3, attempt=3)  # another number of ranks
    job.but(strategy="AllReduce", strategy_options={}, steps=60).run(2, attempt=4)
    losses = job.losses()
    assert sum(losses[50:]) < sum(losses[10:20]) < sum(losses[:10])


@pytest.mark.parametrize("outer", ["Average", "Nesterov"])
def test_local_sgd_learns_digits(new_job: NewJob, outer: str) -> None:
    plan: Options = {**DIGITS, "steps": 200, "checkpoint_every": 200, "global_batch_size": 64}
    reference = new_job("reference", strategy="OneDevice", **plan).run(1).result()["metrics"]["accuracy"]
    options = {"every": 8, "outer": outer}
    accuracy = new_job("local", strategy="LocalSGD", strategy_options=options, **plan).run(2).result()["metrics"]
    assert accuracy["accuracy"] > reference - 0.03


def test_local_sgd_averages_buffers_whatever_the_outer_optimizer(new_job: NewJob) -> None:
    found = {}
    for outer in ("Average", "Nesterov"):
        options = {"every": 8, "outer": outer}
        plan: Options = {"strategy": "LocalSGD", "strategy_options": options, "checkpoint_every": 8, "steps": 24}
        job = new_job(outer, task="small_tasks:LineWithRunningMeans", **plan).run(2)
        found[outer] = [read(job.checkpoints(), step).state.tensors["model/1.running_var"] for step in (8, 16, 24)]
    # Until the first meeting there is no difference between them.
    assert torch.allclose(found["Nesterov"][0], found["Average"][0])
    assert all(bool((variance > 0).all()) for variances in found.values() for variance in variances), found


def test_local_sgd_saves_the_mean_of_moments_that_not_all_ranks_have(new_job: NewJob) -> None:
    """Each of two ranks has one sample in a step, and so one of five experts with a gradient."""
    plan: Options = {"task": "odd_tasks:WithExperts", "global_batch_size": 2, "checkpoint_every": 1}
    job = new_job(strategy="LocalSGD", steps=3, **plan).run(2)
    for step in (1, 2, 3):
        tensors = read(job.checkpoints(), step).state.tensors
        own = {name for name in tensors if name.startswith("local/") and "/optimizer/" in name}
        moments = {name.split("/", 2)[2] for name in own}
        assert moments == {name for name in tensors if name.startswith("optimizer/")}
        for name in moments:
            zeros = torch.zeros_like(tensors[name])
            one, two = (tensors.get(f"local/{rank}/{name}", zeros) for rank in (0, 1))
            assert torch.allclose(tensors[name], (one + two) / 2), (step, name)
    assert len(job.but(strategy="OneDevice", steps=5).run(1, attempt=2).losses()) == 5


@pytest.mark.parametrize(("strategy", "inside"), [("AllReduce", 1), ("Mirrored", 3), ("CentralStorage", 3)])
def test_the_death_of_a_rank_ends_the_others_at_once_with_the_reason(
    new_job: NewJob, strategy: str, inside: int
) -> None:
    job = new_job(strategy=strategy, arguments={"seconds": 0.01}, steps=100_000, checkpoint_every=100_000)
    running = job.start(3, ranks_per_pod=inside)
    running.reach(3)
    os.kill(running.pids[2], signal.SIGKILL)
    assert [running.wait_for(rank) for rank in (0, 1)] == [1, 1]
    # Whoever is between two sums just then, in a call of gloo, hears of it from there.
    lost = r"PeerLostError: rank 2, which shares memory with this rank, has ended|Connection (closed|reset) by peer"
    assert re.search(lost, running.output()), running.output()


@pytest.mark.parametrize(
    ("strategy", "options", "inside", "kept"),
    [
        ("Mirrored", {}, 2, 13),
        ("CentralStorage", {}, 2, 13),
        ("LocalSGD", {"every": 5, "outer": "Nesterov"}, 1, 10),
        ("AllReduce", {"compression": "TopK"}, 1, 13),
        ("AllReduce", {"compression": "PowerSGD"}, 1, 13),
    ],
)
def test_from_memory_it_goes_on_bit_by_bit(
    new_job: NewJob, strategy: str, options: Options, inside: int, kept: int
) -> None:
    arguments = {"seconds": 0.01, "dropout": 0.2, "width": 4}
    plan: Options = {"strategy": strategy, "strategy_options": options, "arguments": arguments, "steps": 30}
    undisturbed = new_job("undisturbed", **plan).run(2, ranks_per_pod=inside)
    job = replace(new_job("killed", checkpoint_every=1000, memory_every=1, **plan), memory=True)
    running = job.start(2, ranks_per_pod=inside)
    running.reach(13)
    running.kill()
    job.run(2, attempt=2, ranks_per_pod=inside)
    assert min(line["step"] for line in job.lines() if line["attempt"] == 2) >= kept
    assert job.losses() == undisturbed.losses()
    assert job.manifest(30)["model_sha256"] == undisturbed.manifest(30)["model_sha256"]
