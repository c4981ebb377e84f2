"""Evaluations on the way under strategies that split the model: those of one device, also after a kill."""

from __future__ import annotations

import pytest
from trainmaster.wire.training import Aim

from tests.trainer.ranks import NewJob, Options
from tests.trainer.test_evaluations import evaluations, metrics, saved

MEASURED: Options = {
    "task": "measured_tasks:MeasuredApart",
    "evaluate_every": 2,
    "checkpoint_every": 3,
    "checkpoint_keep": 1,
    "checkpoint_best": Aim("validation_loss", "max"),
    "arguments": {"seconds": 0.02},
    "steps": 8,
}
WAYS: list[tuple[str, Options, int]] = [
    ("FullySharded", {}, 2),
    ("Pipeline", {}, 2),
    ("Tensor", {}, 2),
    ("Mesh", {"data": 2, "tensor": 2}, 4),
]


@pytest.mark.parametrize(("strategy", "options", "ranks"), WAYS)
def test_a_model_in_parts_is_evaluated_on_the_way(new_job: NewJob, strategy: str, options: Options, ranks: int) -> None:
    one = new_job("one", strategy="OneDevice", **MEASURED).run(1)
    job = new_job("apart", strategy=strategy, strategy_options=options, **MEASURED)
    running = job.start(ranks)
    running.reach(5)
    running.kill()
    job.run(ranks, attempt=2)
    assert [*evaluations(job)] == [2, 4, 6, 8]
    for step, figures in evaluations(job).items():
        for name in ("validation_loss", "error", "first"):
            assert figures[name] == pytest.approx(evaluations(one)[step][name], rel=1e-4), (step, name)
    for ours, theirs in zip(metrics(job), metrics(one), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    assert saved(job) == saved(one) == [2, 8]
