"""Models in layers, cut into stages and spread: each layer computes as often, and in the mode, as on one device."""

from __future__ import annotations

import pytest

from tests.trainer.ranks import NewJob, Options
from tests.trainer.strategies.test_strategies import TOLERANCE

PIPELINE: tuple[str, Options, int] = ("Pipeline", {}, 2)
MESH: tuple[str, Options, int] = ("Mesh", {"sharded": 2, "pipeline": 2}, 4)
SHARDED: tuple[str, Options, int] = ("FullySharded", {}, 2)


@pytest.mark.parametrize(
    ("task", "strategy"),
    [
        ("WithOneActivation", PIPELINE),
        ("WithOneActivation", MESH),
        ("WithAChainOfItsOwn", PIPELINE),
        ("WithALayerTwice", PIPELINE),
        ("WithALayerTwice", MESH),
        ("WithALayerTwice", SHARDED),
        ("WithATiedPair", MESH),
        ("WithFrozenNorm", PIPELINE),
        ("WithFrozenNorm", MESH),
        ("WithTexts", PIPELINE),
    ],
)
def test_the_losses_are_those_of_one_device(new_job: NewJob, task: str, strategy: tuple[str, Options, int]) -> None:
    """Also after a checkpoint, which has every tensor under each of its names."""
    plan: Options = {"task": f"chain_tasks:{task}", "checkpoint_every": 3}
    expected = new_job("one", **plan, strategy="OneDevice").run(1).losses()
    kind, options, world = strategy
    job = new_job("split", **plan, strategy=kind, strategy_options=options, steps=3).run(world)
    job = job.but(strategy="OneDevice", strategy_options={}, steps=4).run(1, attempt=2)
    job = job.but(strategy=kind, strategy_options=options, steps=6).run(world, attempt=3)
    assert job.losses() == pytest.approx(expected, rel=TOLERANCE)


def test_a_layer_with_parameters_cannot_be_on_two_stages(new_job: NewJob) -> None:
    running = new_job(task="chain_tasks:WithDistantTwins", strategy="Pipeline").start(2)
    assert running.wait() == [78, 78]
    assert "the layers 0 and 4 share a parameter or a buffer and would be on different stages" in running.output()


def test_a_model_that_draws_random_numbers_in_any_mode_is_cut(new_job: NewJob) -> None:
    assert len(new_job(task="chain_tasks:WithNoise", strategy="Pipeline").run(2).losses()) == 6


def test_a_look_ahead_leaves_no_trace_in_buffers(new_job: NewJob) -> None:
    """One call for each of two micro-batches and six steps, and none for the looks at the model before."""
    job = new_job(task="chain_tasks:WithACount", strategy="Pipeline", strategy_options={"microBatches": 2})
    job = job.run(2).but(strategy="OneDevice", strategy_options={}, steps=7).run(1, attempt=2)
    assert job.result()["metrics"]["calls"] == 6 * 2 + 1


@pytest.mark.parametrize(
    ("changes", "world"),
    [({"strategy": "OneDevice"}, 1), ({"strategy": "AllReduce"}, 2), ({"reproducible": True}, 2)],
)
def test_texts_are_cut_into_parts_as_their_targets_are(new_job: NewJob, changes: Options, world: int) -> None:
    plan: Options = {"task": "chain_tasks:WithTexts", "global_batch_size": 9}
    expected = new_job("one", **plan, strategy="OneDevice").run(1).losses()
    job = new_job("parts", **plan, **changes, micro_batch_size=2).run(world)
    assert job.losses() == pytest.approx(expected, rel=TOLERANCE)


def test_ranks_that_spread_a_stage_cut_their_shares_into_as_many_parts(new_job: NewJob) -> None:
    """15 samples are shares of 8 and 7; each part is a gather of the layers."""
    plan: Options = {
        "task": "trainmaster_trainer.tasks.digits:Digits",
        "arguments": {"hidden": 32, "layers": 3},
        "global_batch_size": 15,
    }
    expected = new_job("one", **plan, strategy="OneDevice").run(1).losses()
    kind, options, world = MESH
    job = new_job("mesh", **plan, strategy=kind, strategy_options=options).run(world)
    assert job.losses() == pytest.approx(expected, rel=TOLERANCE)
