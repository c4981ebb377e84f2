"""The audit of samples: each index once per epoch, and the same global batch at any world size."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from trainmaster_trainer.data import Batch, Batches, SampleOrder, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.making import VALIDATION, as_dataset
from trainmaster_trainer.permutation import FEW, block, permute, shuffle
from trainmaster_trainer.strategies.microbatches import split
from trainmaster_trainer.task import Samples
from typing_extensions import override

from tests.trainer.small_tasks import Noisy

sizes = st.integers(1, 200)


@given(samples=sizes, batch_size=sizes, seed=st.integers(0, 2**70), epochs=st.integers(1, 3))
def test_every_sample_once_per_epoch_at_any_world_size(samples: int, batch_size: int, seed: int, epochs: int) -> None:
    order = SampleOrder(samples, batch_size, seed)
    steps = -(-samples * epochs // batch_size)
    seen = {}
    for world in (1, 2, 3, 4):
        shares = [Share(rank, world) for rank in range(world)]
        batches = [np.concatenate([order.share(step, share) for share in shares]) for step in range(1, steps + 1)]
        seen[world] = np.concatenate(batches)
        for epoch in range(epochs):
            assert sorted(seen[world][epoch * samples : (epoch + 1) * samples]) == list(range(samples))
    assert all(np.array_equal(seen[1], seen[world]) for world in seen)


@given(size=st.integers(0, 1000), of=st.integers(1, 50))
def test_shares_differ_by_one_at_most_and_leave_no_gap(size: int, of: int) -> None:
    bounds = [Share(index, of).bounds(size) for index in range(of)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == size
    assert all(left[1] == right[0] for left, right in pairwise(bounds))
    lengths = [end - first for first, end in bounds]
    assert max(lengths) - min(lengths) <= 1


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {block(100, seed, epoch, 0).tobytes() for seed in (1, 2, -1, 2**64 - 2) for epoch in (0, 1)}
    assert len(orders) == 8


@pytest.mark.parametrize("samples", [FEW - 1, FEW, FEW + 1, FEW + 5000])
def test_blocks_and_epochs_join_without_a_seam(samples: int) -> None:
    order = SampleOrder(samples, 5000, 3)
    steps = -(-3 * samples // 5000)
    seen = np.concatenate([order.indices(step) for step in range(1, steps + 1)])
    for epoch in range(3):
        expected = shuffle(samples, 3, epoch) if samples <= FEW else permute(np.arange(samples), samples, 3, epoch)
        assert np.array_equal(seen[epoch * samples : (epoch + 1) * samples], expected)


def test_a_batch_of_a_huge_dataset_costs_no_more_than_of_a_small_one() -> None:
    """No table of all its samples: that would not fit into memory."""
    order = SampleOrder(10**15, 8, 1)
    assert len({*order.indices(10**14).tolist(), *order.indices(10**14 + 1).tolist()}) == 16


Item = tuple[dict[str, torch.Tensor], int]


class Squares(Dataset[Item]):
    """A map-style dataset whose items are asked for one by one."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Item:
        return {"n": torch.tensor(index)}, index * index


class SquaresAtOnce(Squares):
    """The same, with torch's interface for many at once."""

    def __getitems__(self, indices: list[int]) -> list[Item]:
        return [self[index] for index in indices]


@pytest.mark.parametrize("dataset", [Squares(), SquaresAtOnce()])
def test_datasets_of_any_kind_give_the_same_batch(dataset: Samples) -> None:
    batches = Batches(dataset, 4, steps=2, seed=3, device=torch.device("cpu"))
    batch = batches.take(2, Share(1, 3))
    numbers = SampleOrder(5, 4, 3).indices(2)[2:3]
    assert batch.inputs["n"].tolist() == numbers.tolist()
    assert batch.targets.tolist() == (numbers**2).tolist()
    assert (batch.size, batch.global_size, batch.fraction_done) == (1, 4, 1.0)


def take_noisy(step: int, share: Share, seed: int = 3) -> torch.Tensor:
    batch = Batches(Noisy(), 8, steps=9, seed=seed, device=torch.device("cpu")).take(step, share)
    return torch.cat([batch.inputs, batch.targets], dim=1)


def test_who_takes_the_same_samples_draws_the_same_random_numbers_for_them() -> None:
    taken = take_noisy(5, Share(1, 2))
    torch.manual_seed(7), np.random.seed(7), random.seed(7)  # noqa: NPY002 (as a task may)
    assert torch.equal(take_noisy(5, Share(1, 2)), taken)
    others = [take_noisy(6, Share(1, 2)), take_noisy(5, Share(0, 2)), take_noisy(5, Share(2, 4, 2))]
    assert not any(torch.isclose(other, taken).any() for other in [*others, take_noisy(5, Share(1, 2), seed=4)])


def test_several_parts_are_what_each_of_them_is_alone() -> None:
    alone = [take_noisy(5, Share(index, 4)) for index in (1, 2, 3)]
    assert torch.equal(take_noisy(5, Share(1, 4, parts=3)), torch.cat(alone))


class Shifted(TensorDataset):
    """Does something with each sample, and so is asked for one at a time."""

    @override
    def __getitem__(self, index: int) -> Any:
        assert isinstance(index, int)
        number, square = self.tensors[0][index], self.tensors[1][index]
        return number + 100 * (index % 2), square


def test_a_dataset_derived_from_one_of_tensors_is_asked_for_its_own_samples() -> None:
    numbers = torch.arange(5)
    dataset: Any = Shifted(numbers, numbers**2)
    batches = Batches(dataset, 5, steps=1, seed=3, device=torch.device("cpu"))
    batch = batches.take(1, Share(0, 1))
    assert sorted(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)) == [
        (0, 0), (2, 4), (4, 16), (101, 1), (103, 9),
    ]  # fmt: skip


def test_weights_make_the_mean_over_shares_that_over_samples() -> None:
    samples = torch.arange(10.0)
    batches = Batches((samples, samples), 10, steps=1, seed=0, device=torch.device("cpu"))
    parts = [batches.take(1, Share(rank, 4)) for rank in range(4)]
    mean = sum(part.targets.mean() * part.weight(4) for part in parts) / 4
    assert float(mean) == pytest.approx(4.5)


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (torch.ones(6, 2), torch.ones(6)),  # a collate that leaves out broken samples
        (torch.ones(16, 2), torch.ones(16)),  # one that gives two views of each
        (torch.ones(5, 8, 2), torch.ones(8)),  # time comes first
        ({"rows": torch.ones(8, 2), "scale": torch.tensor(2.0)}, torch.ones(8)),
    ],
)
def test_a_batch_that_is_cut_has_the_samples_in_its_first_dimension(inputs: Any, targets: torch.Tensor) -> None:
    """Else some would be left out in silence, or paired with the targets of others."""
    batch = Batch(inputs, targets, size=8, global_size=8, fraction_done=1.0)
    assert batch.parts(8) == [batch]
    for cut in (lambda: batch.parts(3), lambda: split(batch, 2)):
        with pytest.raises(ConfigurationError, match=r"of a batch of 8 samples have a tensor of shape \[.*collate"):
            cut()


ROWS, NUMBERS = torch.ones(6, 2), torch.ones(6)


@pytest.mark.parametrize(
    "batch",
    [
        (ROWS, NUMBERS),
        ({"rows": ROWS}, NUMBERS),
        (ROWS[:1], NUMBERS[:1]),
        (ROWS[:0], ROWS[:0]),
        (torch.ones(6, 8), NUMBERS),  # as many columns as samples were asked for
    ],
)
def test_a_share_of_which_samples_are_left_out_is_refused_where_its_mean_is_weighed(batch: Any) -> None:
    """Else the mean over fewer samples would be weighed as that over all of them."""
    share = Batch(batch[0], batch[1], size=8, global_size=16, fraction_done=1.0, shares=2)
    replace(share, shares=1).check_has_all()
    share.check_has_all(is_counted=True)
    with pytest.raises(ConfigurationError, match=r"collate\(\) was given 8 samples and returned a batch of \d.*pair"):
        share.check_has_all()


@pytest.mark.parametrize(
    "batch",
    [
        (torch.ones(5, 8, 2), torch.ones(8)),  # time comes first
        (torch.ones(5, 8, 2), torch.ones(5, 8)),
        (torch.ones(1, 30), torch.ones(1, 30)),  # all tokens in one row
        (torch.ones(3, 4), torch.ones(8)),
        ({"nodes": torch.ones(5, 2), "edges": torch.ones(2, 7)}, torch.ones(3)),  # graphs
        (torch.ones(16, 2), torch.ones(16)),  # two views of each
        (object(), torch.tensor(1.0)),
    ],
)
def test_a_batch_that_is_none_of_samples_is_left_alone(batch: Any) -> None:
    Batch(batch[0], batch[1], size=8, global_size=16, fraction_done=1.0, shares=2).check_has_all()


def test_a_dataset_that_gives_fewer_samples_than_it_was_asked_for_is_refused() -> None:
    class Fewer(Squares):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[index] for index in indices[1:]]

    with pytest.raises(ConfigurationError, match=r"of what dataset\(\) gave was asked for 4 samples and gave 3\."):
        Batches(Fewer(), 4, steps=2, seed=3, device=torch.device("cpu")).take(1, Share(0, 1))


def test_a_role_without_a_share_gets_an_empty_batch() -> None:
    batches = Batches(Squares(), 4, steps=2, seed=3, device=torch.device("cpu"))
    assert batches.take(1, None).size == 0


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ((torch.empty(0, 1), torch.empty(0)), "is empty"),
        ((torch.empty(3, 1), torch.empty(2)), r"differ in length: \[3, 2\]"),
        ((np.ones(3), torch.empty(3)), "gave a tuple with ndarray in it. Give two tensors"),
        (3, "give a map-style Dataset"),
        (DataLoader(Squares(), batch_size=4), "gave a DataLoader that makes batches.*Return the loader's own dataset"),
    ],
)
def test_a_dataset_that_cannot_be_used_is_a_configuration_error(samples: Samples, message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"spec\.training\.task: .*" + message):
        Batches(samples, 4, steps=2, seed=3, device=torch.device("cpu"))


def test_validation_samples_are_no_stream_even_one_that_says_its_length() -> None:
    class Flow(IterableDataset[Any]):
        def __len__(self) -> int:
            return 4

        @override
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    with pytest.raises(ConfigurationError, match=r"validation_dataset\(\) cannot be indexed.*may give a stream"):
        as_dataset(Flow(), VALIDATION)


@pytest.mark.parametrize(
    ("sample", "given"),
    [
        ((1, 2, 3), "3 parts"),
        ({"x": 1, "y": 2}, "a dict of 'x', 'y'"),
        (torch.ones(3), "one Tensor"),
        ((1,), "1 parts"),
    ],
)
def test_samples_that_are_no_pairs_are_refused(sample: Any, given: str) -> None:
    batches = Batches([sample] * 8, 4, steps=2, seed=3, device=torch.device("cpu"))
    with pytest.raises(ConfigurationError, match=rf"a sample of its dataset\(\) is {given}. Give pairs"):
        batches.take(1, Share(0, 1))
