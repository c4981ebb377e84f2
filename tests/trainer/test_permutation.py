"""The order of an epoch: a permutation, as random as a shuffle's, asked at any place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster_trainer.permutation import permute, shuffle

SEEDS = 6000


def whole(samples: int, seed: int, epoch: int = 0) -> list[int]:
    order: list[int] = permute(np.arange(samples), samples, seed, epoch).tolist()
    return order


@given(samples=st.integers(1, 3000), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 2**40))
def test_each_sample_stands_at_one_place(samples: int, seed: int, epoch: int) -> None:
    assert sorted(whole(samples, seed, epoch)) == list(range(samples))


@pytest.mark.parametrize("samples", [1, 2, 3, 1000, 2**20, 2**20 + 1, 10**12, 2**62])
def test_a_place_says_the_same_alone_and_among_others(samples: int) -> None:
    places = np.unique([index * (samples - 1) // 49 for index in range(50)])
    together = permute(places, samples, 5, 2)
    alone = [permute(places[index : index + 1], samples, 5, 2)[0] for index in range(len(places))]
    assert together.tolist() == alone
    assert len(set(alone)) == len(places)
    assert 0 <= min(alone) <= max(alone) < samples


def test_the_order_is_the_same_for_ever() -> None:
    """A checkpoint of today must be resumable in ten years, on any machine."""
    assert shuffle(10, 1, 0).tolist() == [3, 5, 2, 9, 7, 0, 8, 6, 1, 4]
    assert whole(10, 1) == [7, 3, 5, 1, 0, 4, 6, 8, 2, 9]
    assert permute(np.array([0, 1, 10**9]), 10**12, -7, 3).tolist() == [988420116033, 889095127391, 804685068638]


@pytest.mark.parametrize("samples", [37, 100])
def test_neighbours_are_as_far_apart_as_by_chance(samples: int) -> None:
    """How often each difference of two neighbours occurs, round the circle: none more than another."""
    orders = np.array([whole(samples, seed) for seed in range(SEEDS // 10)])
    differences = np.diff(orders, axis=1) % samples
    assert_even(np.bincount(differences.ravel(), minlength=samples)[1:].tolist())


@pytest.mark.parametrize("samples", [37, 100, 1437])
def test_any_sample_may_stand_at_any_place(samples: int) -> None:
    first, last = np.array([0]), np.array([samples - 1])
    for place in (first, last):
        found = [int(permute(place, samples, seed, 1)[0]) for seed in range(SEEDS)]
        assert_even(np.bincount(found, minlength=samples).tolist())


def assert_even(counts: list[int]) -> None:
    """Chi-squared: what chance gives is about the number of counts, hardly ever five deviations more."""
    expected = sum(counts) / len(counts)
    freedom = len(counts) - 1
    assert sum((count - expected) ** 2 / expected for count in counts) < freedom + 5 * (2 * freedom) ** 0.5
