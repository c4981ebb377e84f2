"""The seeds of random numbers: what they depend on, and what a look that draws leaves as it was."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from trainmaster_trainer.randomness import Generators, seed_alike, seed_rank, seed_samples


def drawn() -> list[float]:
    """Return one number of each generator, normal ones, of which NumPy and Python keep every second for later."""
    return [random.gauss(0, 1), float(np.random.normal()), float(torch.randn(()))]  # noqa: NPY002 (as people do)


def test_numbers_follow_from_seed_rank_and_step_and_from_nothing_drawn_before() -> None:
    seed_rank(3, 1, 20)
    expected = drawn()
    for draws in (0, 1, 7):
        seed_alike(5)
        for _ in range(draws):
            drawn()
        seed_rank(3, 1, 20)
        assert drawn() == expected


def test_seeds_rank_and_step_have_numbers_of_their_own_and_samples_too() -> None:
    found = set()
    for seed in (1, 2, 2**70):
        for rank in (-1, 0, 1, 2):
            for step in (1, 2):
                seed_rank(seed, rank, step)
                found |= {*drawn()}
                seed_samples(seed, step, max(rank, 0), 3 + (rank == -1))
                found |= {*drawn()}
    assert len(found) == 3 * 2 * 3 * 4 * 2


def test_generators_are_put_back_as_they_were() -> None:
    seed_alike(1)
    drawn()  # so that a second number is kept
    before = Generators.now()
    expected = drawn()
    seed_alike(2)
    drawn()
    before.put_back()
    assert drawn() == expected


def test_what_is_told_of_numpys_generator_is_what_numpy_says() -> None:
    """After whatever may change it: nothing, one of a pair of normal numbers, one word, a seed, another generator."""
    numpys: Any = np.random
    before = numpys.get_state()
    changes: list[Callable[[], object]] = [
        lambda: None,
        numpys.normal,
        numpys.normal,
        lambda: None,
        numpys.random,
        lambda: numpys.random(700),
        lambda: numpys.seed(3),
        numpys.normal,
        lambda: numpys.set_state(before),
        lambda: numpys.set_bit_generator(numpys.MT19937(5)),
        numpys.random,
    ]
    for change in changes * 2:
        change()
        told, said = Generators.now().numpy, numpys.get_state()
        assert (told[0], *told[2:]) == (said[0], *said[2:])
        assert np.array_equal(told[1], said[1])


def test_what_is_told_of_the_other_generators_is_what_they_say() -> None:
    """Likewise, and the same object again where nothing was drawn: nothing is compared number by number."""
    own = random.Random(5)  # noqa: S311 (no secret)
    before = random.getstate(), torch.get_rng_state()
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: random.gauss(0, 1),
        lambda: random.gauss(0, 1),
        random.random,
        lambda: random.sample(range(5000), 700),
        lambda: random.seed(3),
        lambda: random.setstate(own.getstate()),
        lambda: random.setstate(before[0]),
        lambda: torch.set_rng_state(before[1]),
        lambda: torch.rand(700),
        lambda: torch.manual_seed(3),
    ]
    for change in changes * 2:
        change()
        told, again = Generators.now(), Generators.now()
        assert told.python == random.getstate()
        assert torch.equal(told.torch, torch.get_rng_state())
        assert again.is_same(told) or told.python[2] is not None
