"""Evaluations on the way under each strategy: those of one device, and those of a calm run whatever is killed when."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from trainmaster.wire.training import Aim

from tests.trainer.ranks import Job, NewJob, Options
from tests.trainer.test_evaluations import evaluations, metrics, saved

# The error falls from the beginning, so the first evaluation is the worst, and no later one is better by that aim.
MEASURED: Options = {
    "task": "measured_tasks:MeasuredApart",
    "evaluate_every": 2,
    "checkpoint_every": 3,
    "checkpoint_keep": 1,
    "checkpoint_best": Aim("validation_loss", "max"),
    "stop_early": Aim("validation_loss", "max", 3),
    "arguments": {"seconds": 0.02},
    "steps": 12,
}
Way = tuple[str, Options, int, int]  # a strategy with options, ranks, and how many of them a replica has
ALIKE: list[Way] = [
    ("FullySharded", {}, 2, 1),
    ("Pipeline", {}, 2, 1),
    ("Tensor", {}, 2, 1),
    ("Mesh", {"data": 2, "tensor": 2}, 4, 1),
    ("CentralStorage", {}, 2, 2),
    ("OneDevice", {}, 1, 1),
]
ANOTHER_MODEL: list[Way] = [("LocalSGD", {"every": 2}, 2, 1)]


@pytest.fixture
def one(new_job: NewJob) -> Job:
    """A run on one device that nobody disturbed."""
    return new_job("one", strategy="OneDevice", **MEASURED).run(1)


@pytest.mark.parametrize("way", [*ALIKE, *ANOTHER_MODEL], ids=lambda way: str(way[0]))
def test_killed_at_random_steps_it_evaluates_keeps_and_stops_as_a_calm_one(new_job: NewJob, one: Job, way: Way) -> None:
    """With snapshots in memory and without: a kill may come before, within and after an evaluation."""
    strategy, options, ranks, inside = way
    plan: Options = {"strategy": strategy, "strategy_options": options, **MEASURED}
    calm = new_job("calm", **plan).run(ranks, ranks_per_pod=inside)
    chance = random.Random(strategy)  # noqa: S311 (no secret)
    job = replace(new_job("killed", **plan, memory_every=1), memory=chance.random() < 0.5)
    for attempt, step in enumerate(sorted(chance.sample(range(1, 8), 2)), start=1):
        running = job.start(ranks, attempt, ranks_per_pod=inside)
        running.reach(step)
        running.kill()
    job.run(ranks, attempt=3, ranks_per_pod=inside)
    assert [*evaluations(job)] == [2, 4, 6, 8]
    assert (evaluations(job), saved(job), job.losses()) == (evaluations(calm), saved(calm), calm.losses())
    assert saved(job) == saved(one) == [2, 8]
    if way in ALIKE:
        assert_as_one(job, one)


def assert_as_one(job: Job, one: Job) -> None:
    for step, figures in evaluations(job).items():
        for name in ("validation_loss", "error", "first"):
            assert figures[name] == pytest.approx(evaluations(one)[step][name], rel=1e-4), (step, name)
    for ours, theirs in zip(metrics(job), metrics(one), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
