"""`spec.reproducible`: the same final model, to the last bit, at any number of ranks and after any change of it."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.strategies import find_strategy
from trainmaster_trainer.strategies.virtual_ranks import VIRTUAL_RANKS, Subtree, fold, subtrees_of
from trainmaster_trainer.tasks.digits import Digits

from tests.trainer.ranks import NewJob, Options, alone

DIGITS = {
    "task": "trainmaster_trainer.tasks.digits:Digits",
    "arguments": {"hidden": 32, "dropout": 0.2},
    "global_batch_size": 50,
}
TASKS: dict[str, Options] = {
    "digits with dropout": DIGITS,
    "text": {
        "task": "trainmaster_trainer.tasks.text:Text",
        "arguments": {"layers": 1, "width": 16, "heads": 2, "context": 16, "bytes": 100_000},
        "global_batch_size": 21,
    },
    "batch normalisation": {
        "task": "small_tasks:LineWithRunningMeans",
        "arguments": {"dropout": 0.2},
        "global_batch_size": 19,
    },
    "random samples": {"task": "small_tasks:WithNoisySamples", "global_batch_size": 19},
    "an optimizer that draws": {
        "task": "moving_tasks:WithNoise",
        "arguments": {"dropout": 0.2},
        "global_batch_size": 19,
    },
    "extra state": {"task": "odd_tasks:WithExtraState", "global_batch_size": 19},
}


@pytest.mark.parametrize("name", TASKS)
def test_the_hash_of_the_model_is_the_same_at_any_world_size(new_job: NewJob, name: str) -> None:
    plan = {**TASKS[name], "reproducible": True, "steps": 4, "checkpoint_every": 4}
    hashes = {world: new_job(f"world-{world}", **plan).run(world).manifest(4)["model_sha256"] for world in (1, 2, 3, 4)}
    assert len(set(hashes.values())) == 1, hashes


def test_the_hash_is_the_same_after_any_resize(new_job: NewJob) -> None:
    plan = {**DIGITS, "reproducible": True, "checkpoint_every": 2}
    expected = new_job("whole", steps=6, **plan).run(2).manifest(6)["model_sha256"]
    job = new_job("resized", steps=6, **plan)
    for attempt, (world, steps) in enumerate([(3, 2), (1, 4), (4, 6)], 1):
        job.but(steps=steps).run(world, attempt)
    assert job.manifest(6)["model_sha256"] == expected


def test_losses_are_those_of_one_device(new_job: NewJob) -> None:
    plan = {**TASKS["text"], "steps": 6}
    expected = new_job("one", strategy="OneDevice", **plan).run(1).losses()
    assert new_job("three", reproducible=True, **plan).run(3).losses() == pytest.approx(expected, rel=1e-5)


def test_without_it_the_bits_differ(new_job: NewJob) -> None:
    """Else the tests above would prove nothing."""
    plan = {**DIGITS, "steps": 4, "checkpoint_every": 4}
    hashes = {new_job(f"plain-{world}", **plan).run(world).manifest(4)["model_sha256"] for world in (1, 2, 3)}
    assert len(hashes) > 1


@given(st.sets(st.integers(1, VIRTUAL_RANKS - 1)))
def test_the_tree_has_the_same_bits_however_it_is_cut(cuts: set[int]) -> None:
    numbers = torch.randn(VIRTUAL_RANKS, 64, generator=torch.Generator().manual_seed(0)) * 1e3
    leaves = [Subtree(place, 1, row) for place, row in enumerate(numbers)]
    edges = [0, *sorted(cuts), VIRTUAL_RANKS]
    parts = [fold(leaves[first:end]) for first, end in pairwise(edges)]
    assert [[(s.first, s.width) for s in part] for part in parts] == [
        subtrees_of(first, end) for first, end in pairwise(edges)
    ]
    (whole,), (root,) = fold(leaves), fold([subtree for part in parts for subtree in part])
    assert torch.equal(whole.sum, root.sum)


def test_strategies_without_a_fixed_order_of_sums_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"spec\.reproducible: LocalSGD cannot promise"):
        find_strategy("LocalSGD", reproducible=True)


def test_more_ranks_than_parts_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="8 ranks at most, here are 9"):
        find_strategy("AllReduce", reproducible=True)(Digits(), replace(alone(), world_size=9), {"seed": 1})
