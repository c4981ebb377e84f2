"""Models that become different ones while they are trained: refused where a part of them would be lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trainer.ranks import NewJob, Options


@pytest.mark.parametrize(
    ("strategy", "inside", "frost"),
    [
        ({"strategy": "AllReduce"}, 1, False),
        ({"strategy": "AllReduce"}, 1, True),
        ({"strategy": "Mirrored"}, 2, False),
        ({"strategy": "Mirrored"}, 2, True),
        ({"strategy": "AllReduce", "reproducible": True}, 1, False),
    ],
)
def test_parameters_that_are_trained_from_some_step_on_are_refused_before_that_step_is_taken(
    new_job: NewJob, strategy: Options, inside: int, frost: bool
) -> None:
    """The ranks' gradients of them would never be averaged."""
    job = new_job(task="late_tasks:WithThaw", arguments={"frost": frost}, **strategy)
    running = job.start(2, ranks_per_pod=inside)
    assert running.wait() == [78, 78]
    assert "requires_grad of the model's parameter first.weight has changed since the first step" in running.output()
    assert [page.read().step for page in running.pages] == [2, 2]


def test_a_reproducible_sum_does_without_those_that_rest(new_job: NewJob) -> None:
    plan: Options = {"task": "late_tasks:WithThaw", "arguments": {"frost": True}, "strategy": "AllReduce"}
    jobs = [new_job(f"at-{world}", **plan, reproducible=True).run(world) for world in (1, 2)]
    first, second = (job.manifest(6)["model_sha256"] for job in jobs)
    assert first == second


@pytest.mark.parametrize("strategy", ["OneDevice", "LocalSGD"])
def test_others_train_them(new_job: NewJob, strategy: str) -> None:
    job = new_job(task="late_tasks:WithThaw", strategy=strategy).run(1 if strategy == "OneDevice" else 2)
    assert len(job.losses()) == 6


@pytest.mark.parametrize("absent", [False, True], ids=["empty", "absent"])
@pytest.mark.parametrize("strategy", ["OneDevice", "AllReduce", "FullySharded"])
def test_a_buffer_of_another_shape_is_refused_at_the_first_save(new_job: NewJob, strategy: str, absent: bool) -> None:
    """Any restart would have found another model in each of its checkpoints."""
    ranks = 1 if strategy == "OneDevice" else 2
    job = new_job(task="late_tasks:WithObserver", arguments={"absent": absent}, strategy=strategy)
    running = job.start(ranks)
    assert running.wait() == [78] * ranks
    before = "absent" if absent else "float32[0]"
    assert f"lowest of the model was {before} as model() made it and is float32[3] after" in running.output()
    assert not list(job.checkpoints().glob("step-*"))


def test_so_it_is_at_the_first_snapshot_in_memory(new_job: NewJob) -> None:
    job = new_job(task="late_tasks:WithObserver", checkpoint_every=1000, memory_every=1)
    running = replace(job, memory=True).start(2)
    assert running.wait() == [78, 78]
    assert "lowest of the model was float32[0]" in running.output()
    assert [page.read().step for page in running.pages] == [0, 0]
