"""Models that become different ones while they are trained: refused where a part of them would be lost."""

from __future__ import annotations

import pytest

from tests.trainer.ranks import NewJob, Options


@pytest.mark.parametrize("frost", [False, True], ids=["thaw", "frost"])
@pytest.mark.parametrize(
    ("strategy", "inside"),
    [
        ({"strategy": "AllReduce"}, 1),
        ({"strategy": "Mirrored"}, 2),
        ({"strategy": "AllReduce", "reproducible": True}, 1),
    ],
    ids=["AllReduce", "Mirrored", "reproducible"],
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


@pytest.mark.parametrize("strategy", ["OneDevice", "LocalSGD"])
def test_others_train_them(new_job: NewJob, strategy: str) -> None:
    job = new_job(task="late_tasks:WithThaw", strategy=strategy).run(1 if strategy == "OneDevice" else 2)
    assert len(job.losses()) == 6
